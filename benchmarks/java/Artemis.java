import java.io.File;
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

/** Artemis with a configuration file of its own: java -cp JARS Artemis.java broker.xml */
public class Artemis {
    public static void main(String[] arguments) throws Exception {
        new EmbeddedActiveMQ().setConfigResourcePath(new File(arguments[0]).toURI().toString()).start();
        Thread.currentThread().join();
    }
}
