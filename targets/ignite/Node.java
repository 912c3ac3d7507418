import java.nio.file.Path;
import org.apache.ignite.IgniteServer;
import org.apache.ignite.InitParameters;

/**
 * One Apache Ignite 3 node, and the cluster that it is. Until that is initialised, no client is let in.
 * Arguments: the node's configuration, its directory, the cluster's first configuration.
 */
public final class Node {
    public static void main(String[] args) {
        try {
            IgniteServer node =
                    IgniteServer.start("plimsoll", Path.of(args[0]).toAbsolutePath(), Path.of(args[1]).toAbsolutePath());
            // harmless where the directory has a cluster already
            node.initCluster(InitParameters.builder()
                    .clusterName("plimsoll")
                    .metaStorageNodeNames("plimsoll")
                    .clusterConfiguration(args[2])
                    .build());
        } catch (RuntimeException failed) {
            // what was started so far would keep the process alive
            failed.printStackTrace();
            System.exit(1);
        }
    }
}
