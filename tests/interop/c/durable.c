/* A client in C that subscribes durably, leaves, sends, and comes back for what it missed: a connection for each. */
#include "stories.h"

enum { SUBSCRIBES = 1, SENDS = 2, COMES_BACK = 3 };
static int visit = SUBSCRIBES;

static void open_subscription(pn_session_t *session) {
    pn_link_t *receiver = pn_receiver(session, "news");
    pn_terminus_t *source = pn_link_source(receiver);
    pn_terminus_set_address(source, "topic:c-news");
    pn_terminus_set_durability(source, PN_DELIVERIES);
    pn_terminus_set_expiry_policy(source, PN_EXPIRE_NEVER);
    pn_link_open(receiver);
    if (visit == COMES_BACK) pn_link_flow(receiver, 10);
}

static void send_word(pn_link_t *sender) {
    pn_message_t *message = pn_message();
    pn_message_set_durable(message, true);
    pn_data_put_string(pn_message_body(message), pn_bytes(9, "meanwhile"));
    send_encoded(sender, message);
    pn_link_advance(sender);
}

static void delivered(pn_delivery_t *delivery) {
    pn_link_t *link = pn_delivery_link(delivery);
    if (pn_link_is_sender(link)) {
        if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) exit(4);
        pn_delivery_settle(delivery);
        pn_connection_close(pn_session_connection(pn_link_session(link)));
    } else if (pn_delivery_readable(delivery) && !pn_delivery_partial(delivery)) {
        pn_message_t *message = received_message(delivery);
        pn_bytes_t body = pn_data_get_string(pn_message_body(message));
        printf("%.*s\n", (int)body.size, body.start);
        pn_message_free(message);
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
        pn_link_close(link); /* to close it ends the subscription, to detach it does not */
    }
}

static bool handle(pn_event_t *event) {
    pn_connection_t *connection = pn_event_connection(event);
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_session_t *session = opened_session(connection);
        if (visit == SENDS) opened_sender(session, "topic:c-news");
        else open_subscription(session);
        break;
    }
    case PN_LINK_REMOTE_OPEN:
        if (visit == SUBSCRIBES) pn_link_detach(pn_event_link(event));
        if (visit == SENDS) send_word(pn_event_link(event));
        break;
    case PN_LINK_REMOTE_DETACH:
    case PN_LINK_REMOTE_CLOSE:
        pn_connection_close(connection);
        break;
    case PN_DELIVERY:
        delivered(pn_event_delivery(event));
        break;
    case PN_TRANSPORT_CLOSED:
        if (visit++ == COMES_BACK) return false;
        dial(pn_event_proactor(event));
        break;
    default:
        break;
    }
    return true;
}
