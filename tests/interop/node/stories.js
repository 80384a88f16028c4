// rhea, the usual AMQP client for Node: each story ends with a line of JSON on the output.
"use strict";
const rhea = require("rhea");
const frames = require("rhea/lib/frames.js");

const [, , story, port] = process.argv;
const options = { host: "127.0.0.1", port: Number(port), initial_reconnect_delay: 50, max_reconnect_delay: 200 };

function finish(connection, result) {
  console.log(JSON.stringify(result));
  connection.close();
}

function plain(container) {
  const received = [];
  let sent = 0;
  let accepted = 0;
  const connection = container.connect(options);
  connection.open_receiver({ source: "rhea-plain", credit_window: 10 });
  connection.open_sender("rhea-plain");
  container.on("sendable", (context) => {
    while (sent < 50 && context.sender.sendable()) {
      sent += 1;
      context.sender.send({ body: { number: sent, text: "ä" }, durable: true, application_properties: { n: sent } });
    }
  });
  container.on("accepted", () => {
    accepted += 1;
    check();
  });
  container.on("message", (context) => {
    received.push([context.message.body.number, context.message.application_properties.n]);
    check();
  });
  function check() {
    if (received.length === 50 && accepted === 50) {
      setTimeout(() => finish(connection, received), 50);
    }
  }
}

function outcomes(container) {
  const seen = [];
  const connection = container.connect(options);
  connection.open_receiver({ source: "rhea-outcomes", credit_window: 1, autoaccept: false });
  connection.open_sender("rhea-outcomes").send({ body: "work" });
  container.on("message", (context) => {
    seen.push(context.message.delivery_count || 0);
    if (seen.length === 1) {
      context.delivery.release();
    } else if (seen.length === 2) {
      context.delivery.modified({ delivery_failed: true });
    } else {
      context.delivery.accept();
      setTimeout(() => finish(connection, seen), 50);
    }
  });
}

function durable(container) {
  const received = [];
  const source = { address: "topic:rhea-news", durable: 2, expiry_policy: "never" };
  container.id = "rhea-durable";
  let connection = container.connect(options);
  const receiver = connection.open_receiver({ name: "news", source });
  let isBack = false;
  container.on("receiver_open", () => {
    if (!isBack) {
      receiver.detach();
    }
  });
  container.once("receiver_close", () => {
    isBack = true;
    const sender = connection.open_sender({ name: "s", target: "topic:rhea-news" });
    sender.once("sendable", () => sender.send({ body: "meanwhile", durable: true }));
    sender.once("accepted", () => connection.open_receiver({ name: "news", source }));
  });
  container.on("message", (context) => {
    received.push(context.message.body);
    context.receiver.close();
    setTimeout(() => finish(connection, received), 100);
  });
}

function reconnect(container) {
  const received = new Set();
  const unsettled = new Map();
  let next = 0;
  let asked = false;
  const connection = container.connect(options);
  connection.open_receiver("rhea-restarted");
  const sender = connection.open_sender("rhea-restarted");
  container.on("sendable", () => {
    while (next < 100 && sender.sendable()) {
      unsettled.set(sender.send({ body: next, durable: true }).id, next);
      next += 1;
    }
  });
  container.on("accepted", (context) => unsettled.delete(context.delivery.id));
  container.on("disconnected", () => {
    next = Math.min(next, ...unsettled.values());
    unsettled.clear();
  });
  container.on("message", (context) => {
    received.add(context.message.body);
    if (received.size === 50 && !asked) {
      asked = true;
      console.log("restart");
    }
    if (received.size === 100) {
      finish(connection, received.size);
    }
  });
}

function transactions(container) {
  const { types } = rhea;
  const transactional = 0x34;
  const staged = new Map();
  const received = [];
  let id = null;
  let round = 0;
  // rhea has no words for transactions: the state of a transfer, the coordinator and `declared` are added here.
  types.wrap_delivery_state = (state) => state;
  const transfer = frames.transfer;
  frames.transfer = (fields) => transfer({ ...fields, state: staged.get(String(fields.delivery_tag)) });
  const unwrap = rhea.message.unwrap_outcome;
  rhea.message.unwrap_outcome = (state) => (known.has(Number(state.descriptor.value)) ? state : unwrap(state));
  console.warn = () => {}; // of a terminus that it does not know
  const known = new Set([0x33, transactional]);
  const stateOf = (...outcome) => types.wrap_described([types.wrap_binary(id), ...outcome], transactional);

  const connection = container.connect(options);
  const coordinator = connection.open_sender({ name: "coordinator", target: {} });
  coordinator.local.attach.target = types.wrap_described([], 0x30);
  const sender = connection.open_sender({ name: "sender", target: "queue:rhea-transacted" });
  const source = "queue:rhea-transacted";
  const receiver = connection.open_receiver({ name: "receiver", source, credit_window: 0, autoaccept: false });
  const say = (...bytes) => coordinator.send(Buffer.from([0x00, 0x53, 0x77, 0x00, 0x53, ...bytes]), undefined, 0);
  const declare = () => say(0x31, 0x45);
  const discharge = (fails) => say(0x32, 0xc0, id.length + 4, 2, 0xa0, id.length, ...id, fails ? 0x41 : 0x42);

  // Rounds 1 and 2 send, 3 and 4 receive; 1 and 3 are rolled back.
  coordinator.once("sendable", declare);
  coordinator.on("rejected", ({ delivery }) => finish(connection, delivery.remote_state.error));
  coordinator.on("settled", ({ delivery }) => {
    const state = delivery.remote_state;
    if (state.descriptor && Number(state.descriptor.value) === 0x33) {
      const [raw] = state.value;
      id = raw.value || raw;
      round += 1;
      if (round > 2) {
        receiver.add_credit(1);
      } else {
        const tag = `round ${round}`;
        staged.set(tag, stateOf());
        sender.send({ body: round, durable: true }, tag);
      }
    } else if (round < 4) {
      declare();
    } else {
      setTimeout(() => finish(connection, received), 50);
    }
  });
  sender.on("settled", () => discharge(round === 1));
  receiver.on("message", (context) => {
    received.push([context.message.body, context.message.delivery_count || 0]);
    context.delivery.update(true, stateOf(types.wrap_described([], 0x24)));
    setImmediate(() => discharge(round === 3)); // rhea sends messages before what it says of others
  });
}

function alerts(container) {
  const connection = container.connect(options);
  const filter = rhea.filter.selector("topics = 'TAG:pump'");
  connection.open_receiver({ source: { address: "alerts:rhea", filter } });
  container.once("receiver_open", () => {
    const message = { body: "hot", priority: 7, application_properties: { alert_destination: "TAG:pump" } };
    connection.open_sender("alerts:rhea").send(message);
  });
  container.on("message", ({ message }) => {
    const { alert_destination: destination } = message.application_properties;
    setTimeout(() => finish(connection, [destination, message.body.content.toString(), message.priority]), 50);
  });
}

({ plain, outcomes, durable, reconnect, transactions, alerts })[story](rhea.create_container());
