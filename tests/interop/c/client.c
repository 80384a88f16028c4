/* A client in C on Debian's Proton: sends messages, receives and accepts them, and prints what it saw. */
#include "stories.h"

#define COUNT 100

static int sent, accepted, received;

static void send_next(pn_link_t *sender) {
    while (sent < COUNT && pn_link_credit(sender) > 0) {
        pn_message_t *message = pn_message();
        pn_message_set_durable(message, true);
        pn_data_put_int(pn_message_body(message), sent++);
        send_encoded(sender, message);
        pn_link_advance(sender);
    }
}

static void delivered(pn_delivery_t *delivery) {
    pn_link_t *link = pn_delivery_link(delivery);
    if (pn_link_is_sender(link)) {
        if (pn_delivery_remote_state(delivery) == PN_ACCEPTED) accepted++;
        pn_delivery_settle(delivery);
    } else if (pn_delivery_readable(delivery) && !pn_delivery_partial(delivery)) {
        pn_message_t *message = received_message(delivery);
        if (pn_data_get_int(pn_message_body(message)) != received) exit(4);
        pn_message_free(message);
        received++;
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
        pn_link_flow(link, 1);
    }
}

static bool handle(pn_event_t *event) {
    pn_connection_t *connection = pn_event_connection(event);
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_session_t *session = opened_session(connection);
        opened_sender(session, "queue:from-c");
        pn_link_t *receiver = pn_receiver(session, "receiver");
        pn_terminus_set_address(pn_link_source(receiver), "queue:from-c");
        pn_link_open(receiver);
        pn_link_flow(receiver, 10);
        break;
    }
    case PN_LINK_FLOW:
        if (pn_link_is_sender(pn_event_link(event))) send_next(pn_event_link(event));
        break;
    case PN_DELIVERY:
        delivered(pn_event_delivery(event));
        if (accepted == COUNT && received == COUNT) pn_connection_close(connection);
        break;
    case PN_TRANSPORT_CLOSED:
        printf("%d %d %d\n", sent, accepted, received);
        return false;
    case PN_PROACTOR_INACTIVE:
        return false;
    default:
        break;
    }
    return true;
}
