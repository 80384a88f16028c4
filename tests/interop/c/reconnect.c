/* A client in C whose server is restarted while it sends and receives. It comes back, sends
   what it has no answer for, and prints how many different messages it got. */
#include "stories.h"

enum { COUNT = 100, RETRY_MS = 50 };
enum { WAITS = 0, UNDER_WAY = 1, ACCEPTED = 2 };
static char states[COUNT];
static bool is_received[COUNT];
static int accepted, received;

static void want_restart(void) {
    printf("restart\n");
    fflush(stdout);
}

static void send_next(pn_link_t *sender) {
    for (int number = 0; number < COUNT && pn_link_credit(sender) > 0; number++) {
        if (states[number] != WAITS) continue;
        pn_message_t *message = pn_message();
        pn_message_set_durable(message, true);
        pn_data_put_int(pn_message_body(message), number);
        send_encoded(sender, message);
        pn_delivery_set_context(pn_link_current(sender), &states[number]);
        pn_link_advance(sender);
        states[number] = UNDER_WAY;
        if (accepted < COUNT / 2 && number >= COUNT / 2) break; /* the rest has to wait for the restart */
    }
}

static void delivered(pn_delivery_t *delivery) {
    pn_link_t *link = pn_delivery_link(delivery);
    if (pn_link_is_sender(link)) {
        char *state = pn_delivery_get_context(delivery);
        if (pn_delivery_remote_state(delivery) == PN_ACCEPTED && *state == UNDER_WAY) {
            *state = ACCEPTED;
            if (++accepted == COUNT / 2) want_restart();
        }
        pn_delivery_settle(delivery);
        if (accepted > COUNT / 2) send_next(link);
    } else if (pn_delivery_readable(delivery) && !pn_delivery_partial(delivery)) {
        pn_message_t *message = received_message(delivery);
        int number = pn_data_get_int(pn_message_body(message));
        pn_message_free(message);
        if (!is_received[number]) received++;
        is_received[number] = true;
        pn_delivery_update(delivery, PN_ACCEPTED);
        pn_delivery_settle(delivery);
        pn_link_flow(link, 1);
    }
}

static void opened(pn_connection_t *connection) {
    pn_session_t *session = opened_session(connection);
    opened_sender(session, "queue:c-again");
    pn_link_t *receiver = pn_receiver(session, "receiver");
    pn_terminus_set_address(pn_link_source(receiver), "queue:c-again");
    pn_link_open(receiver);
    pn_link_flow(receiver, 10);
}

static bool handle(pn_event_t *event) {
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT:
        opened(pn_event_connection(event));
        break;
    case PN_LINK_FLOW:
        if (pn_link_is_sender(pn_event_link(event))) send_next(pn_event_link(event));
        break;
    case PN_DELIVERY:
        delivered(pn_event_delivery(event));
        if (received == COUNT && accepted == COUNT) pn_connection_close(pn_event_connection(event));
        break;
    case PN_TRANSPORT_CLOSED:
        if (received == COUNT && accepted == COUNT) {
            printf("%d\n", received);
            return false;
        }
        for (int number = 0; number < COUNT; number++)
            if (states[number] == UNDER_WAY) states[number] = WAITS;
        pn_proactor_set_timeout(pn_event_proactor(event), RETRY_MS);
        break;
    case PN_PROACTOR_TIMEOUT:
        dial(pn_event_proactor(event));
        break;
    default:
        break;
    }
    return true;
}
