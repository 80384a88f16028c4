/* A client in C that transacts: what it sends and takes in a transaction that it rolls back did not happen. It prints
   what it received, and how often that had been handed out before. */
#include "stories.h"

enum { DECLARED = 0x33, TRANSACTIONAL = 0x34 };
enum { COORDINATOR_BYTES = 64 };
static pn_link_t *coordinator, *sender, *receiver;
static char transaction[COORDINATOR_BYTES];
static size_t transaction_size;
static int round_number;
static bool is_discharging;

static void told(pn_message_t *message) {
    pn_message_set_inferred(message, false);
    send_encoded(coordinator, message);
    pn_link_advance(coordinator);
}

static void declare(void) {
    pn_message_t *message = pn_message();
    pn_data_t *body = pn_message_body(message);
    pn_data_put_described(body);
    pn_data_enter(body);
    pn_data_put_ulong(body, 0x31);
    pn_data_put_list(body);
    pn_data_exit(body);
    is_discharging = false;
    told(message);
}

static void discharge(bool fails) {
    pn_message_t *message = pn_message();
    pn_data_t *body = pn_message_body(message);
    pn_data_put_described(body);
    pn_data_enter(body);
    pn_data_put_ulong(body, 0x32);
    pn_data_put_list(body);
    pn_data_enter(body);
    pn_data_put_binary(body, pn_bytes(transaction_size, transaction));
    pn_data_put_bool(body, fails);
    pn_data_exit(body);
    pn_data_exit(body);
    is_discharging = true;
    told(message);
}

/* Whatever becomes of a delivery becomes of it with the transaction. */
static void join(pn_delivery_t *delivery, bool accepts) {
    pn_data_t *state = pn_disposition_data(pn_delivery_local(delivery));
    pn_data_put_list(state);
    pn_data_enter(state);
    pn_data_put_binary(state, pn_bytes(transaction_size, transaction));
    if (accepts) {
        pn_data_put_described(state);
        pn_data_enter(state);
        pn_data_put_ulong(state, PN_ACCEPTED);
        pn_data_put_list(state);
        pn_data_exit(state);
    }
    pn_data_exit(state);
    pn_delivery_update(delivery, TRANSACTIONAL);
}

static void send_in_transaction(void) {
    pn_message_t *message = pn_message();
    pn_message_set_durable(message, true);
    pn_data_put_int(pn_message_body(message), round_number);
    send_encoded(sender, message);
    join(pn_link_current(sender), false);
    pn_link_advance(sender);
}

/* Rounds 1 and 2 send, 3 and 4 receive; 1 and 3 are rolled back. */
static void begun(pn_delivery_t *delivery) {
    pn_data_t *state = pn_disposition_data(pn_delivery_remote(delivery));
    pn_data_rewind(state);
    if (!pn_data_next(state) || !pn_data_enter(state) || !pn_data_next(state)) exit(5);
    pn_bytes_t id = pn_data_get_binary(state);
    if (!id.size || id.size > COORDINATOR_BYTES) exit(6);
    memcpy(transaction, id.start, transaction_size = id.size);
    round_number++;
    if (round_number <= 2) send_in_transaction();
    else pn_link_flow(receiver, 1);
}

static void delivered(pn_delivery_t *delivery) {
    pn_link_t *link = pn_delivery_link(delivery);
    uint64_t state = pn_delivery_remote_state(delivery);
    if (link == coordinator) {
        if (state != DECLARED && state != PN_ACCEPTED) exit(7);
        bool is_over = is_discharging && round_number == 4;
        if (state == DECLARED) begun(delivery);
        else if (!is_over) declare();
        pn_delivery_settle(delivery);
        if (is_over) pn_connection_close(pn_session_connection(pn_link_session(link)));
    } else if (link == sender) {
        if (state != TRANSACTIONAL) exit(8);
        pn_delivery_settle(delivery);
        discharge(round_number == 1);
    } else if (pn_delivery_readable(delivery) && !pn_delivery_partial(delivery)) {
        pn_message_t *message = received_message(delivery);
        printf("%d %d\n", pn_data_get_int(pn_message_body(message)), (int)pn_message_get_delivery_count(message));
        pn_message_free(message);
        join(delivery, true);
        pn_delivery_settle(delivery);
        discharge(round_number == 3);
    }
}

static bool handle(pn_event_t *event) {
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: {
        pn_session_t *session = opened_session(pn_event_connection(event));
        coordinator = pn_sender(session, "coordinator");
        pn_terminus_set_type(pn_link_target(coordinator), PN_COORDINATOR);
        pn_link_open(coordinator);
        sender = opened_sender(session, "queue:c-transacted");
        receiver = pn_receiver(session, "receiver");
        pn_terminus_set_address(pn_link_source(receiver), "queue:c-transacted");
        pn_link_open(receiver);
        break;
    }
    case PN_LINK_REMOTE_OPEN:
        if (pn_event_link(event) == receiver) declare();
        break;
    case PN_DELIVERY:
        delivered(pn_event_delivery(event));
        break;
    case PN_TRANSPORT_CLOSED:
    case PN_PROACTOR_INACTIVE:
        return false;
    default:
        break;
    }
    return true;
}
