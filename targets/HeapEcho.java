import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/** An echo server with one thread that keeps an object of 16 KiB for each connection, as sessions do. */
public final class HeapEcho {
    public static void main(String[] args) throws IOException {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open();
        listener.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 4096);
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        ByteBuffer buffer = ByteBuffer.allocateDirect(64 * 1024);
        while (true) {
            try {
                selector.select();
                for (SelectionKey key : selector.selectedKeys()) {
                    if (key.isAcceptable()) {
                        accept(listener, selector);
                    } else {
                        echo(key, buffer);
                    }
                }
            } catch (OutOfMemoryError full) {
                // As servers do that catch everything, it goes on: what was not handled is selected again.
            } finally {
                selector.selectedKeys().clear();
            }
        }
    }

    private static void accept(ServerSocketChannel listener, Selector selector) throws IOException {
        SocketChannel client = listener.accept();
        if (client == null) {
            return;
        }
        try {
            client.configureBlocking(false);
            client.register(selector, SelectionKey.OP_READ, new byte[16 * 1024]);
        } catch (OutOfMemoryError full) {
            client.close();
        }
    }

    private static void echo(SelectionKey key, ByteBuffer buffer) throws IOException {
        SocketChannel client = (SocketChannel) key.channel();
        try {
            buffer.clear();
            if (client.read(buffer) < 0) {
                client.close();
                return;
            }
            buffer.flip();
            while (buffer.hasRemaining()) {
                client.write(buffer);
            }
        } catch (IOException gone) {
            client.close();
        }
    }
}
