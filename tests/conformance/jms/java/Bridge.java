import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.Enumeration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import javax.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;
import org.json.JSONArray;
import org.json.JSONObject;

/** Does with Qpid JMS what a test says: a JSON object in each line of the input, the answer in a line of the output. */
public class Bridge {
    private static final Map<Integer, Object> THINGS = new ConcurrentHashMap<>();
    private static final Map<String, Destination> TEMPORARIES = new ConcurrentHashMap<>();
    private static final Map<String, Integer> MAKERS = new ConcurrentHashMap<>();
    private static final Map<Object, Enumeration<?>> BROWSED = new ConcurrentHashMap<>();
    private static final Map<Integer, Integer> OWNERS = new ConcurrentHashMap<>();
    /** Of connections that are closed: a test may still see what such a thing says when it is used. */
    private static final ConcurrentSkipListMap<Integer, Boolean> KEPT = new ConcurrentSkipListMap<>();
    private static final AtomicInteger LAST = new AtomicInteger();
    private static PrintStream out;

    public static void main(String[] arguments) throws Exception {
        out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ExecutorService workers = Executors.newCachedThreadPool();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject request = new JSONObject(line);
            workers.execute(() -> answer(request));
        }
        System.exit(0);
    }

    private static void answer(JSONObject request) {
        JSONObject reply = new JSONObject().put("id", request.getInt("id"));
        try {
            Object result = handle(request.getString("do"), request);
            reply.put("result", result == null ? JSONObject.NULL : result);
        } catch (Throwable problem) {
            reply.put("error", problem.getClass().getSimpleName()).put("text", String.valueOf(problem.getMessage()));
        }
        say(reply);
    }

    private static synchronized void say(JSONObject word) {
        out.println(word);
    }

    /** What belongs to a connection is forgotten with it. */
    private static int keep(Object thing, int owner) {
        int number = LAST.incrementAndGet();
        THINGS.put(number, thing);
        OWNERS.put(number, owner == 0 ? number : OWNERS.getOrDefault(owner, owner));
        return number;
    }

    private static Object close(JSONObject request) throws Exception {
        int number = request.getInt("of");
        Object thing = THINGS.get(number);
        if (thing == null) {
            return null;
        }
        ((AutoCloseable) thing).close();
        BROWSED.remove(thing);
        if (thing instanceof Connection) {
            OWNERS.entrySet().removeIf(each -> {
                boolean isGone = each.getValue() == number;
                if (isGone) {
                    KEPT.put(each.getKey(), true);
                }
                return isGone;
            });
            while (KEPT.size() > 200) {
                int oldest = KEPT.firstKey();
                KEPT.remove(oldest);
                THINGS.remove(oldest);
                THINGS.remove(-oldest);
            }
        }
        return null;
    }

    @SuppressWarnings("unchecked")
    private static <T> T the(JSONObject request, String name) {
        return (T) THINGS.get(request.getInt(name));
    }

    private static Object handle(String word, JSONObject request) throws Exception {
        switch (word) {
            case "connect": return connect(request);
            case "start": Bridge.<Connection>the(request, "of").start(); return null;
            case "stop": Bridge.<Connection>the(request, "of").stop(); return null;
            case "session":
                return keep(Bridge.<Connection>the(request, "of").createSession(request.getInt("mode")), request.getInt("of"));
            case "producer": return producer(request);
            case "send": return send(request);
            case "consumer": return consumer(request);
            case "receive": return receive(request);
            case "browser": return browser(request);
            case "browse": return browse(request);
            case "temporary": return temporary(request);
            case "delete": delete(request); return null;
            case "unsubscribe": Bridge.<Session>the(request, "of").unsubscribe(request.getString("name")); return null;
            case "recover": Bridge.<Session>the(request, "of").recover(); return null;
            case "commit": Bridge.<Session>the(request, "of").commit(); return null;
            case "rollback": Bridge.<Session>the(request, "of").rollback(); return null;
            case "acknowledge": Bridge.<Message>the(request, "of").acknowledge(); return null;
            case "close": return close(request);
            default: throw new IllegalArgumentException(word);
        }
    }

    private static Object connect(JSONObject request) throws Exception {
        JmsConnectionFactory factory = new JmsConnectionFactory(request.getString("url"));
        if (request.has("user")) {
            factory.setUsername(request.getString("user"));
            factory.setPassword(request.getString("password"));
        }
        Connection connection = factory.createConnection();
        try {
            int number = keep(connection, 0);
            connection.setExceptionListener(problem -> say(new JSONObject().put("event", "problem").put("of", number)
                .put("error", problem.getClass().getSimpleName()).put("text", String.valueOf(problem.getMessage()))));
            String client = request.getString("client_id");
            if (!client.isEmpty()) {
                connection.setClientID(client);
            }
            connection.getMetaData();
            if (request.getBoolean("started")) {
                connection.start();
            } else {
                connection.createSession(false, Session.AUTO_ACKNOWLEDGE).close();
            }
            return number;
        } catch (JMSException problem) {
            connection.close();
            throw problem;
        }
    }

    private static Destination destination(Session session, JSONObject said, int of) throws JMSException {
        String name = said.getString("name");
        Destination temporary = TEMPORARIES.get(name);
        if (temporary != null && OWNERS.get(of) != null && OWNERS.get(of).equals(MAKERS.get(name))) {
            return temporary;
        }
        return said.getString("kind").equals("queue") ? session.createQueue(name) : session.createTopic(name);
    }

    private static Object producer(JSONObject request) throws JMSException {
        Session session = the(request, "of");
        MessageProducer producer = session.createProducer(destination(session, request.getJSONObject("destination"), request.getInt("of")));
        JSONObject options = request.getJSONObject("options");
        if (options.has("priority")) {
            producer.setPriority(options.getInt("priority"));
        }
        if (options.has("persistent")) {
            producer.setDeliveryMode(mode(options));
        }
        if (options.has("time_to_live")) {
            producer.setTimeToLive(milliseconds(options, "time_to_live"));
        }
        if (options.has("delay")) {
            producer.setDeliveryDelay(milliseconds(options, "delay"));
        }
        int number = keep(producer, request.getInt("of"));
        THINGS.put(-number, session);
        return number;
    }

    private static int mode(JSONObject options) {
        return options.getBoolean("persistent") ? DeliveryMode.PERSISTENT : DeliveryMode.NON_PERSISTENT;
    }

    private static long milliseconds(JSONObject options, String name) {
        return Math.round(options.getDouble(name) * 1000);
    }

    private static Object send(JSONObject request) throws JMSException {
        MessageProducer producer = the(request, "of");
        Session session = (Session) THINGS.get(-request.getInt("of"));
        JSONObject options = request.getJSONObject("options");
        Message message = message(session, request.getJSONArray("body"));
        describe(session, message, options, request.getInt("of"));
        int mode = options.has("persistent") ? mode(options) : producer.getDeliveryMode();
        int priority = options.has("priority") ? options.getInt("priority") : producer.getPriority();
        long life = options.has("time_to_live") ? milliseconds(options, "time_to_live") : producer.getTimeToLive();
        long usual = producer.getDeliveryDelay();
        if (options.has("delay")) {
            producer.setDeliveryDelay(milliseconds(options, "delay"));
        }
        try {
            if (request.has("token")) {
                producer.send(message, mode, priority, life, new Completion(request.getInt("token")));
            } else {
                producer.send(message, mode, priority, life);
            }
        } finally {
            producer.setDeliveryDelay(usual);
        }
        return message.getJMSMessageID();
    }

    private static final class Completion implements CompletionListener {
        private final int token;

        Completion(int token) {
            this.token = token;
        }

        @Override
        public void onCompletion(Message message) {
            say(new JSONObject().put("event", "completion").put("of", token));
        }

        @Override
        public void onException(Message message, Exception problem) {
            say(new JSONObject().put("event", "completion").put("of", token)
                .put("error", problem.getClass().getSimpleName()).put("text", String.valueOf(problem.getMessage())));
        }
    }

    private static void describe(Session session, Message message, JSONObject options, int of) throws JMSException {
        if (options.has("correlation_id")) {
            message.setJMSCorrelationID(options.getString("correlation_id"));
        }
        if (options.has("type")) {
            message.setJMSType(options.getString("type"));
        }
        if (options.has("reply_to")) {
            message.setJMSReplyTo(destination(session, options.getJSONObject("reply_to"), of));
        }
        if (options.has("group_id")) {
            message.setStringProperty("JMSXGroupID", options.getString("group_id"));
        }
        if (options.has("group_sequence")) {
            message.setIntProperty("JMSXGroupSeq", options.getInt("group_sequence"));
        }
        if (options.has("properties")) {
            JSONObject properties = options.getJSONObject("properties");
            for (String name : properties.keySet()) {
                message.setObjectProperty(name, plain(properties.get(name)));
            }
        }
    }

    /** JSON has one kind of number with a point and one without. */
    private static Object plain(Object value) {
        if (value == JSONObject.NULL) {
            return null;
        }
        return value instanceof java.math.BigDecimal ? (Object) ((java.math.BigDecimal) value).doubleValue() : value;
    }

    private static Message message(Session session, JSONArray body) throws JMSException {
        Object value = body.get(1);
        switch (body.getString(0)) {
            case "text":
                return session.createTextMessage((String) value);
            case "bytes":
                BytesMessage bytes = session.createBytesMessage();
                bytes.writeBytes(Base64.getDecoder().decode((String) value));
                return bytes;
            case "map":
                MapMessage map = session.createMapMessage();
                for (Object pair : (JSONArray) value) {
                    map.setObject(((JSONArray) pair).getString(0), element(((JSONArray) pair).get(1)));
                }
                return map;
            default:
                StreamMessage stream = session.createStreamMessage();
                for (Object each : (JSONArray) value) {
                    stream.writeObject(element(each));
                }
                return stream;
        }
    }

    private static Object element(Object value) throws JMSException {
        if (value instanceof JSONObject && ((JSONObject) value).has("bytes")) {
            return Base64.getDecoder().decode(((JSONObject) value).getString("bytes"));
        }
        return plain(value);
    }

    private static Object consumer(JSONObject request) throws JMSException {
        Session session = the(request, "of");
        Destination from = destination(session, request.getJSONObject("destination"), request.getInt("of"));
        String selector = request.getString("selector");
        boolean local = request.getBoolean("no_local");
        String durable = request.optString("durable", null);
        String shared = request.optString("shared", null);
        if (durable != null && shared != null) {
            return keep(session.createSharedDurableConsumer((Topic) from, durable, selector), request.getInt("of"));
        }
        if (durable != null) {
            return keep(session.createDurableConsumer((Topic) from, durable, selector, local), request.getInt("of"));
        }
        if (shared != null) {
            return keep(session.createSharedConsumer((Topic) from, shared, selector), request.getInt("of"));
        }
        return keep(session.createConsumer(from, selector, local), request.getInt("of"));
    }

    private static Object receive(JSONObject request) throws JMSException {
        MessageConsumer consumer = the(request, "of");
        if (!request.has("timeout")) {
            return seen(consumer.receive(), request.getInt("of"));
        }
        long timeout = Math.round(request.getDouble("timeout") * 1000);
        return seen(timeout <= 0 ? consumer.receiveNoWait() : consumer.receive(timeout), request.getInt("of"));
    }

    private static Object browser(JSONObject request) throws JMSException {
        Session session = the(request, "of");
        Queue queue = (Queue) destination(session, request.getJSONObject("destination"), request.getInt("of"));
        return keep(session.createBrowser(queue, request.getString("selector")), request.getInt("of"));
    }

    private static Object browse(JSONObject request) throws JMSException {
        QueueBrowser browser = the(request, "of");
        Enumeration<?> messages = BROWSED.get(browser);
        if (messages == null || request.optBoolean("anew")) {
            messages = browser.getEnumeration();
            BROWSED.put(browser, messages);
        }
        return messages.hasMoreElements() ? seen((Message) messages.nextElement(), request.getInt("of")) : null;
    }

    private static Object temporary(JSONObject request) throws JMSException {
        Session session = the(request, "of");
        boolean isQueue = request.getString("kind").equals("queue");
        Destination made = isQueue ? session.createTemporaryQueue() : session.createTemporaryTopic();
        JSONObject said = described(made);
        TEMPORARIES.put(said.getString("name"), made);
        MAKERS.put(said.getString("name"), OWNERS.get(request.getInt("of")));
        return said;
    }

    private static void delete(JSONObject request) throws JMSException {
        Destination gone = TEMPORARIES.get(request.getString("name"));
        if (!OWNERS.get(request.getInt("of")).equals(MAKERS.get(request.getString("name")))) {
            throw new javax.jms.IllegalStateException("only its connection has the object that is deleted");
        }
        if (gone instanceof TemporaryQueue) {
            ((TemporaryQueue) gone).delete();
        } else {
            ((TemporaryTopic) gone).delete();
        }
    }

    private static JSONObject described(Destination destination) throws JMSException {
        boolean isQueue = destination instanceof Queue;
        String name = isQueue ? ((Queue) destination).getQueueName() : ((Topic) destination).getTopicName();
        return new JSONObject().put("kind", isQueue ? "queue" : "topic").put("name", name);
    }

    private static Object seen(Message message, int owner) throws JMSException {
        if (message == null) {
            return null;
        }
        JSONObject said = new JSONObject();
        said.put("thing", keep(message, owner)).put("body", body(message)).put("message_id", message.getJMSMessageID());
        said.put("destination", described(message.getJMSDestination()));
        said.put("timestamp", message.getJMSTimestamp()).put("expiration", message.getJMSExpiration());
        said.put("delivery_time", message.getJMSDeliveryTime()).put("priority", message.getJMSPriority());
        said.put("persistent", message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT);
        said.put("correlation_id", nothing(message.getJMSCorrelationID())).put("type", nothing(message.getJMSType()));
        said.put("reply_to", message.getJMSReplyTo() == null ? JSONObject.NULL : described(message.getJMSReplyTo()));
        said.put("redelivered", message.getJMSRedelivered());
        JSONObject properties = new JSONObject();
        List<String> jmsx = new ArrayList<>();
        for (Object name : Collections.list(message.getPropertyNames())) {
            String text = (String) name;
            if (text.startsWith("JMSX")) {
                jmsx.add(text);
            } else {
                properties.put(text, nothing(message.getObjectProperty(text)));
            }
        }
        said.put("properties", properties);
        for (String name : jmsx) {
            said.put(name, nothing(message.getObjectProperty(name)));
        }
        return said;
    }

    private static Object nothing(Object value) {
        if (value instanceof Double || value instanceof Float) {
            return new JSONObject().put("float", value.toString());
        }
        return value == null ? JSONObject.NULL : value;
    }

    private static JSONArray body(Message message) throws JMSException {
        if (message instanceof TextMessage) {
            return new JSONArray().put("text").put(nothing(((TextMessage) message).getText()));
        }
        if (message instanceof BytesMessage) {
            byte[] bytes = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(bytes);
            return new JSONArray().put("bytes").put(Base64.getEncoder().encodeToString(bytes));
        }
        if (message instanceof MapMessage) {
            JSONArray map = new JSONArray();
            for (Object name : Collections.list(((MapMessage) message).getMapNames())) {
                map.put(new JSONArray().put(name).put(coded(((MapMessage) message).getObject((String) name))));
            }
            return new JSONArray().put("map").put(map);
        }
        if (message instanceof StreamMessage) {
            JSONArray list = new JSONArray();
            while (true) {
                try {
                    list.put(coded(((StreamMessage) message).readObject()));
                } catch (MessageEOFException end) {
                    return new JSONArray().put("list").put(list);
                }
            }
        }
        return new JSONArray().put("nothing").put(JSONObject.NULL);
    }

    private static Object coded(Object value) {
        if (value instanceof byte[]) {
            return new JSONObject().put("bytes", Base64.getEncoder().encodeToString((byte[]) value));
        }
        return nothing(value);
    }
}
