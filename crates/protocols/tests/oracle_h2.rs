//! Do we and another implementation of HTTP/2 understand each other? The `h2` crate, over a pipe in memory.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use h2::{RecvStream, client, server};
use http::{HeaderMap, Request, Response};
use model::{Call, CallKind, Operation, Target};
use proptest::prelude::*;
use protocols::serve::{Service, Slot};
use protocols::{Cue, Driver, Fact, Machine, Out, Plan, grpc};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

/// More than any test needs before it must have ended.
const ROUNDS: usize = 10_000;

/// One end, ours, of a pipe.
struct End<M: Machine> {
    machine: M,
    slot: M::Slot,
    wire: DuplexStream,
    pending: Vec<u8>,
    facts: Vec<Fact>,
}

impl<M: Machine> End<M> {
    fn new(machine: M, slot: M::Slot, wire: DuplexStream) -> Self {
        Self { machine, slot, wire, pending: Vec::new(), facts: Vec::new() }
    }

    async fn cue(&mut self, cue: Cue<'_>) -> usize {
        let mut out = Out::default();
        let used = self.machine.on(&mut self.slot, cue, &mut out).unwrap();
        self.facts.append(&mut out.facts);
        // The other end may have closed after all was said.
        let _ = self.wire.write_all(&out.bytes).await;
        used
    }

    /// Takes what comes until so many facts of a kind were told; or, without one, until the pipe ends.
    async fn until(&mut self, fact: Option<(Fact, usize)>) {
        for _ in 0..ROUNDS {
            if fact.is_some_and(|(fact, n)| self.facts.iter().filter(|&&f| f == fact).count() >= n) {
                return;
            }
            let mut bytes = [0; 4096];
            let n = self.wire.read(&mut bytes).await.unwrap();
            if n == 0 {
                assert!(fact.is_none(), "it ended before {fact:?}: {:?}", self.facts);
                return;
            }
            self.pending.extend_from_slice(&bytes[..n]);
            let pending = std::mem::take(&mut self.pending);
            let used = self.cue(Cue::Bytes(&pending)).await;
            self.pending = pending[used..].to_vec();
        }
        panic!("it goes on for ever: {:?}", self.facts);
    }
}

fn in_time(test: impl Future<Output = ()> + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Reads a request or an answer to its end.
async fn read(body: &mut RecvStream) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        all.extend_from_slice(&data);
    }
    all
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// Sends as the windows allow it.
async fn send(stream: &mut h2::SendStream<bytes::Bytes>, bytes: Vec<u8>, end: bool) {
    let mut bytes = bytes::Bytes::from(bytes);
    while !bytes.is_empty() {
        stream.reserve_capacity(bytes.len());
        let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.unwrap().unwrap();
        let part = bytes.split_to(room.min(bytes.len()));
        let last = end && bytes.is_empty();
        stream.send_data(part, last).unwrap();
    }
}

/// The node, and `h2` as its client.
async fn node() -> client::SendRequest<bytes::Bytes> {
    let (ours, theirs) = tokio::io::duplex(16 * 1024);
    let service = Service::new("node", Box::new(String::new));
    tokio::task::spawn_local(async move { End::new(service, Slot::grpc(), ours).until(None).await });
    let (client, connection) = client::handshake(theirs).await.unwrap();
    tokio::task::spawn_local(async move { connection.await.unwrap() });
    client.ready().await.unwrap()
}

fn request(path: &str) -> Request<()> {
    Request::post(format!("http://h{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("x-name", "a value that is long enough to be packed")
        .body(())
        .unwrap()
}

fn status(trailers: &HeaderMap) -> &str {
    trailers["grpc-status"].to_str().unwrap()
}

#[test]
fn h2_calls_the_node() {
    in_time(async {
        let mut client = node().await;
        // More than any window, so that both sides must wait for each other.
        for size in [0, 1, 5_000, 300_000] {
            let message = framed(&vec![7; size]);
            let (answer, mut stream) =
                client.send_request(request("/plimsoll.v1.Messaging/Echo"), false).unwrap();
            let said = message.clone();
            tokio::task::spawn_local(async move { send(&mut stream, said, true).await });
            let answer = answer.await.unwrap();
            assert_eq!(answer.status().as_u16(), 200);
            assert_eq!(answer.headers()["content-type"], "application/grpc");
            let mut body = answer.into_body();
            assert_eq!(read(&mut body).await, message, "{size}");
            assert_eq!(status(&body.trailers().await.unwrap().unwrap()), "0");
        }
        // A second method on the same connection, whose headers were given numbers before.
        let (answer, mut stream) =
            client.send_request(request("/grpc.health.v1.Health/Check"), false).unwrap();
        stream.send_data(framed(b"").into(), true).unwrap();
        let mut body = answer.await.unwrap().into_body();
        assert_eq!(read(&mut body).await, framed(b"\x08\x01"));
        let (answer, _) = client.send_request(request("/a.B/C"), true).unwrap();
        assert_eq!(status(answer.await.unwrap().headers()), "12");
    });
}

#[test]
fn h2_talks_with_the_node_on_many_streams() {
    in_time(async {
        let mut client = node().await;
        let mut talks = Vec::new();
        for _ in 0..20 {
            let (answer, stream) =
                client.send_request(request("/plimsoll.v1.Messaging/Talk"), false).unwrap();
            talks.push((answer.await.unwrap().into_body(), stream));
        }
        for round in 0..5_u8 {
            for (body, stream) in &mut talks {
                let message = framed(&[round; 300]);
                stream.send_data(message.clone().into(), false).unwrap();
                let mut came = Vec::new();
                while came.len() < message.len() {
                    let data = body.data().await.unwrap().unwrap();
                    body.flow_control().release_capacity(data.len()).unwrap();
                    came.extend_from_slice(&data);
                }
                assert_eq!(came, message);
            }
        }
        for (mut body, mut stream) in talks {
            stream.send_data(bytes::Bytes::new(), true).unwrap();
            assert_eq!(read(&mut body).await, b"");
            assert_eq!(status(&body.trailers().await.unwrap().unwrap()), "0");
        }
    });
}

/// Serves with `h2`: echoes, and ends calls with the status that their path names.
async fn serve(theirs: DuplexStream, window: u32) {
    let mut connection = server::Builder::new()
        .initial_window_size(window)
        .max_concurrent_streams(3)
        .handshake::<_, bytes::Bytes>(theirs)
        .await
        .unwrap();
    while let Some(call) = connection.accept().await {
        // It ends when the client has left.
        let Ok((request, mut answer)) = call else { return };
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.headers()["x-token"], "secret");
        tokio::task::spawn_local(async move {
            let head = Response::builder().header("content-type", "application/grpc+proto").body(()).unwrap();
            let mut stream = answer.send_response(head, false).unwrap();
            let mut body = request.into_body();
            let mut came = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                body.flow_control().release_capacity(data.len()).unwrap();
                came.extend_from_slice(&data);
                let whole = came.len() >= 5
                    && came.len() >= 5 + u32::from_be_bytes(came[1..5].try_into().unwrap()) as usize;
                if whole {
                    let length = 5 + u32::from_be_bytes(came[1..5].try_into().unwrap()) as usize;
                    send(&mut stream, came.drain(..length).collect(), false).await;
                }
            }
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            // The client may have left.
            let _ = stream.send_trailers(trailers);
        });
    }
}

fn plan(kind: CallKind, size: usize) -> Plan {
    let call = Call {
        path: "/a.B/C".to_owned(),
        request: vec![7; size],
        kind,
        metadata: vec![model::Metadata { name: "x-token".to_owned(), value: "secret".to_owned().into() }],
        streams: 2,
    };
    let operation = Operation { call: Some(call), ..Operation::default() };
    Plan { operation: Some(operation), ..Plan::to(Target::parse("grpc://h").unwrap()) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn h2_serves_our_driver(size in prop_oneof![0..50usize, 60_000..200_000usize], window in prop_oneof![1_000..70_000u32, Just(1_000_000)]) {
        for kind in [CallKind::Unary, CallKind::Bidirectional] {
            in_time(async move {
                let (ours, theirs) = tokio::io::duplex(16 * 1024);
                let server = tokio::task::spawn_local(serve(theirs, window));
                let mut client = End::new(grpc::Grpc::new(&plan(kind, size)), grpc::Slot::default(), ours);
                client.cue(Cue::Connected).await;
                client.until(Some((Fact::Ready, 1))).await;
                // More at a time than the server allows streams.
                for round in 1..=2 {
                    client.cue(Cue::Ask).await;
                    for _ in 0..5 {
                        client.cue(Cue::Operate).await;
                    }
                    client.until(Some((Fact::Answered, round))).await;
                    client.until(Some((Fact::Operated, 5 * round))).await;
                }
                assert!(client.pending.is_empty());
                client.cue(Cue::Finish).await;
                drop(client);
                server.await.unwrap();
            });
        }
    }
}
