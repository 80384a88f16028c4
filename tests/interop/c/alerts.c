/* A client in C that subscribes to alerts, publishes one, gets it, acknowledges it, and prints what it saw. */
#include "stories.h"

static pn_link_t *sender;
static int accepted;

/* Whom alerts are for is said with the selector of the link: topics = '...' */
static void ask_for(pn_terminus_t *source, const char *selector) {
    pn_data_t *filter = pn_terminus_filter(source);
    pn_data_put_map(filter);
    pn_data_enter(filter);
    pn_data_put_symbol(filter, pn_bytes(8, "selector"));
    pn_data_put_described(filter);
    pn_data_enter(filter);
    pn_data_put_symbol(filter, pn_bytes(33, "apache.org:selector-filter:string"));
    pn_data_put_string(filter, pn_bytes(strlen(selector), selector));
    pn_data_exit(filter);
    pn_data_exit(filter);
}

static void say(pn_message_t *message, const char *name, const char *value) {
    pn_data_t *properties = pn_message_properties(message);
    pn_data_put_map(properties);
    pn_data_enter(properties);
    pn_data_put_string(properties, pn_bytes(strlen(name), name));
    pn_data_put_string(properties, pn_bytes(strlen(value), value));
    pn_data_exit(properties);
}

static void publish(void) {
    pn_message_t *message = pn_message();
    say(message, "alert_destination", "TAG:pump");
    pn_message_set_priority(message, 9);
    pn_data_put_string(pn_message_body(message), pn_bytes(3, "hot"));
    send_encoded(sender, message);
    pn_link_advance(sender);
}

static void acknowledge(pn_msgid_t alert) {
    pn_message_t *message = pn_message();
    say(message, "alert_action", "acknowledge");
    pn_message_set_correlation_id(message, alert);
    send_encoded(sender, message);
    pn_link_advance(sender);
}

static void delivered(pn_delivery_t *delivery) {
    pn_link_t *link = pn_delivery_link(delivery);
    if (pn_link_is_sender(link)) {
        if (pn_delivery_remote_state(delivery) == PN_ACCEPTED) accepted++;
        pn_delivery_settle(delivery);
    } else if (pn_delivery_readable(delivery) && !pn_delivery_partial(delivery)) {
        pn_message_t *message = received_message(delivery);
        pn_bytes_t body = pn_data_get_binary(pn_message_body(message));
        pn_msgid_t id = pn_message_get_id(message);
        printf("%.*s %d %d\n", (int)body.size, body.start, pn_message_get_priority(message), (int)id.u.as_bytes.size);
        acknowledge(id);
        pn_message_free(message);
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
    }
}

static bool handle(pn_event_t *event) {
    pn_connection_t *connection = pn_event_connection(event);
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_session_t *session = opened_session(connection);
        sender = opened_sender(session, "alerts:from-c");
        pn_link_t *receiver = pn_receiver(session, "receiver");
        pn_terminus_set_address(pn_link_source(receiver), "alerts:from-c");
        ask_for(pn_link_source(receiver), "topics = 'TAG:^pump$'");
        pn_link_open(receiver);
        pn_link_flow(receiver, 1);
        break;
    }
    case PN_LINK_REMOTE_OPEN:
        if (pn_link_is_receiver(pn_event_link(event))) publish();
        break;
    case PN_DELIVERY:
        delivered(pn_event_delivery(event));
        if (accepted == 2) pn_connection_close(connection);
        break;
    case PN_TRANSPORT_CLOSED:
    case PN_PROACTOR_INACTIVE:
        return false;
    default:
        break;
    }
    return true;
}
