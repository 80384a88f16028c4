/* What the clients in C have in common: a connection, which may be made again, whose events go to `handle` until it says
   that it is over. */
#include <proton/connection.h>
#include <proton/delivery.h>
#include <proton/disposition.h>
#include <proton/link.h>
#include <proton/message.h>
#include <proton/proactor.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/transport.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool handle(pn_event_t *event);

static void send_encoded(pn_link_t *sender, pn_message_t *message) {
    static int tag;
    char buffer[1024];
    size_t size = sizeof(buffer);
    if (pn_message_encode(message, buffer, &size)) exit(1);
    pn_message_free(message);
    tag++;
    pn_delivery(sender, pn_dtag((const char *)&tag, sizeof(tag)));
    pn_link_send(sender, buffer, size);
}

/* The message of a delivery that is complete. */
static pn_message_t *received_message(pn_delivery_t *delivery) {
    char buffer[1024];
    ssize_t size = pn_link_recv(pn_delivery_link(delivery), buffer, sizeof(buffer));
    pn_message_t *message = pn_message();
    if (size < 0 || pn_message_decode(message, buffer, size)) exit(2);
    pn_data_rewind(pn_message_body(message));
    if (!pn_data_next(pn_message_body(message))) exit(3);
    return message;
}

static pn_link_t *opened_sender(pn_session_t *session, const char *address) {
    pn_link_t *sender = pn_sender(session, "sender");
    pn_terminus_set_address(pn_link_target(sender), address);
    pn_link_open(sender);
    return sender;
}

static pn_session_t *opened_session(pn_connection_t *connection) {
    pn_connection_set_container(connection, "c-client");
    pn_connection_open(connection);
    pn_session_t *session = pn_session(connection);
    pn_session_open(session);
    return session;
}

static char server_address[PN_MAX_ADDR];

static void dial(pn_proactor_t *proactor) {
    pn_transport_t *transport = pn_transport();
    pn_sasl_allowed_mechs(pn_sasl(transport), "ANONYMOUS");
    pn_proactor_connect2(proactor, NULL, transport, server_address);
}

int main(int count, char **arguments) {
    if (count != 3) return 1;
    pn_proactor_addr(server_address, sizeof(server_address), arguments[1], arguments[2]);
    pn_proactor_t *proactor = pn_proactor();
    dial(proactor);
    for (bool goes_on = true; goes_on;) {
        pn_event_batch_t *events = pn_proactor_wait(proactor);
        for (pn_event_t *event; goes_on && (event = pn_event_batch_next(events));) goes_on = handle(event);
        pn_proactor_done(proactor, events);
    }
    pn_proactor_free(proactor);
    return 0;
}
