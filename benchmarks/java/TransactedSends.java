import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.MessageProducer;
import javax.jms.Session;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Sends transactions of persistent messages for a while and prints how many messages were committed a second. */
public class TransactedSends {
    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        int batch = Integer.parseInt(arguments[1]);
        int size = Integer.parseInt(arguments[2]);
        double seconds = Double.parseDouble(arguments[3]);
        Connection connection = new ActiveMQConnectionFactory(url).createConnection();
        connection.start();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageProducer producer = session.createProducer(session.createQueue("transacted"));
        producer.setDeliveryMode(DeliveryMode.PERSISTENT);
        byte[] body = new byte[size];
        send(session, producer, body, batch, 1.0); // the virtual machine warms up
        System.out.println(send(session, producer, body, batch, seconds));
        connection.close();
        System.exit(0);
    }

    private static double send(Session session, MessageProducer producer, byte[] body, int batch, double seconds)
            throws Exception {
        long begin = System.nanoTime();
        long committed = 0;
        while (System.nanoTime() - begin < seconds * 1e9) {
            for (int count = 0; count < batch; count++) {
                BytesMessage message = session.createBytesMessage();
                message.writeBytes(body);
                producer.send(message);
            }
            session.commit();
            committed += batch;
        }
        return committed / ((System.nanoTime() - begin) / 1e9);
    }
}
