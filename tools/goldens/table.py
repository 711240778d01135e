"""The small random checkpoints, by name."""
from dense import COHERE, GEMMA, GLM, GPT, LLAMA, MISTRAL, OLMO, OTHERS, PHI3, QWEN, STABLELM
from experts import EXPERTS
from nested import NESTED
from published import PUBLISHED
from rwkv import RWKV

DENSE = LLAMA | GPT | QWEN | GEMMA | MISTRAL | PHI3 | COHERE | STABLELM | OLMO | GLM | OTHERS
TINY = DENSE | EXPERTS | NESTED | PUBLISHED | RWKV
