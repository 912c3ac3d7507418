// A server of gRPC's own kind, for tests: its TestService, with health and reflection.
// MIN_TIME is its keepalive enforcement ("off": what it enforces by default), MAX_STREAMS a limit of its own.
package main

import (
	"context"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	testing "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

type service struct {
	testing.UnimplementedTestServiceServer
}

// UnaryCall sends the payload back. Where TOKEN is set, only whoever has it is let in.
func (service) UnaryCall(ctx context.Context, in *testing.SimpleRequest) (*testing.SimpleResponse, error) {
	if token := os.Getenv("TOKEN"); token != "" {
		sent, _ := metadata.FromIncomingContext(ctx)
		if given := sent.Get("authorization"); len(given) != 1 || given[0] != "Bearer "+token {
			return nil, status.Error(codes.Unauthenticated, "no valid token")
		}
	}
	if wanted := in.GetResponseStatus(); wanted.GetCode() != 0 {
		return nil, status.Error(codes.Code(wanted.GetCode()), wanted.GetMessage())
	}
	return &testing.SimpleResponse{Payload: in.GetPayload()}, nil
}

// StreamingOutputCall sends the payload three times.
func (service) StreamingOutputCall(in *testing.StreamingOutputCallRequest, out testing.TestService_StreamingOutputCallServer) error {
	for i := 0; i < 3; i++ {
		if err := out.Send(&testing.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
	return nil
}

// FullDuplexCall sends each payload back.
func (service) FullDuplexCall(stream testing.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testing.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var options []grpc.ServerOption
	if text := os.Getenv("MIN_TIME"); text != "off" {
		least, err := time.ParseDuration(text)
		if err != nil {
			log.Fatalf("MIN_TIME: %v", err)
		}
		options = append(options, grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: least, PermitWithoutStream: true}))
	}
	if text := os.Getenv("MAX_STREAMS"); text != "" {
		most, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			log.Fatalf("MAX_STREAMS: %v", err)
		}
		options = append(options, grpc.MaxConcurrentStreams(uint32(most)))
	}
	server := grpc.NewServer(options...)
	testing.RegisterTestServiceServer(server, service{})
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	reflection.Register(server)
	log.Fatal(server.Serve(listener))
}
