"""stub"""

from heliograph.frontends.native.conversation import Conversation


class MqttConversation(Conversation): ...
