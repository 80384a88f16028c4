"""Names of the properties in which is kept what only AMQP has words for."""

from __future__ import annotations

from typing import Final

from heliograph.frontends.prepared import AMQP_PREFIX

KEPT_PREFIX: Final = AMQP_PREFIX
ID: Final = "JMS_AMQP_ID"  # as the sender gave it: a text, or another value as bytes
CORRELATION: Final = "JMS_AMQP_CORRELATION"  # if it is no text: the value as bytes
CREATED: Final = "JMS_AMQP_CREATED"  # when its sender says that it made it, in milliseconds since 1970
CONTENT_ENCODING: Final = "JMS_AMQP_CONTENT_ENCODING"
REPLY_GROUP: Final = "JMS_AMQP_REPLY_TO_GROUP_ID"
PROPERTY_TYPES: Final = "JMS_AMQP_PROPERTIES"  # a letter for each property
BODY: Final = "JMS_AMQP_BODY"  # the section, and a letter for each value in it
JMS_TYPE: Final = "JMS_AMQP_TYPE"  # what a JMS client calls it, where that does not follow from the body
ANNOTATIONS: Final = "JMS_AMQP_ANNOTATIONS"
FOOTER: Final = "JMS_AMQP_FOOTER"
