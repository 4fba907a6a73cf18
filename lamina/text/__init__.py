"""Text as tokens, and conversations as text."""

from lamina.text.chat import ChatTemplate as ChatTemplate
from lamina.text.tokenizer import Tokenizer as Tokenizer
