// Templates of published families, written anew; tests/parity/test_chat_templates.py holds them against the
// published ones.
#include "lib/text/chat.h"

namespace engine {

namespace {

// Turns that all look alike, with the header's and the end's text around role and content.
#define TURNS(before_role, after_role, after_content)                                             \
  "{% for m in messages %}" before_role "{{ m.role }}" after_role "{{ m.content }}" after_content \
  "{% endfor %}{% if add_generation_prompt %}" before_role "assistant" after_role "{% endif %}"
// Takes a system message from the front into `system`.
#define TAKE_SYSTEM                                                                \
  "{% set system = messages[0].content if messages[0].role == 'system' else '' %}" \
  "{% set turns = messages[1:] if messages[0].role == 'system' else messages %}"
#define MUST_ALTERNATE                                    \
  "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}" \
  "{{ raise_exception('user and assistant must take turns') }}{% endif %}"
#define NEWLINE "{{ '\\n' }}"
// `at`: which user turn the system message goes to.
#define MISTRAL(at, begin, end, before_answer)                            \
  TAKE_SYSTEM "{{ bos_token }}{% for m in turns %}" MUST_ALTERNATE        \
              "{% if m.role == 'user' %}" begin "{% if system and " at    \
              " %}{{ system + '\\n\\n' }}"                                \
              "{% endif %}{{ m.content }}" end "{% else %}" before_answer \
              "{{ m.content + eos_token }}"                               \
              "{% endif %}{% endfor %}"
#define MISTRAL_V7(space)                                                       \
  "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST]" space \
  "{{ m.content }}[/INST]{% elif m.role == 'system' %}[SYSTEM_PROMPT]" space    \
  "{{ m.content }}[/SYSTEM_PROMPT]{% else %}" space                             \
  "{{ m.content + eos_token }}"                                                 \
  "{% endif %}{% endfor %}"
#define BAR "\xEF\xBD\x9C"  // U+FF5C

constexpr BuiltinTemplate kTemplates[] = {
    {"chatml", TURNS("<|im_start|>", NEWLINE, "<|im_end|>" NEWLINE)},
    {"llama2", TAKE_SYSTEM
     "{% for m in turns %}" MUST_ALTERNATE "{% set before = '<<SYS>>\\n' + system + "
     "'\\n<</SYS>>\\n\\n' if loop.first and system else '' %}"
     "{% if m.role == 'user' %}{{ bos_token }}[INST] {{ (before + m.content).strip() }} [/INST]"
     "{% else %} {{ m.content.strip() }} {{ eos_token }}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>"
     "{{ '\\n\\n' + m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
     "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}{% endif %}"},
    {"gemma", TAKE_SYSTEM
     "{{ bos_token }}{% for m in turns %}" MUST_ALTERNATE
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}" NEWLINE
     "{% if loop.first and system %}{{ system + '\\n\\n' }}{% endif %}"
     "{{ m.content | trim }}<end_of_turn>" NEWLINE
     "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model" NEWLINE "{% endif %}"},
    {"mistral-v1", MISTRAL("loop.first", "{{ ' [INST] ' }}", "{{ ' [/INST]' }}", "{{ ' ' }}")},
    {"mistral-v3", MISTRAL("loop.last", "[INST]{{ ' ' }}", "[/INST]", "{{ ' ' }}")},
    {"mistral-v3-tekken", MISTRAL("loop.last", "[INST]", "[/INST]", "")},
    {"mistral-v7", MISTRAL_V7("{{ ' ' }}")},
    {"mistral-v7-tekken", MISTRAL_V7("")},
    {"phi3", "{% for m in messages %}<|{{ m.role }}|>" NEWLINE "{{ m.content }}<|end|>" NEWLINE
             "{% endfor %}{% if add_generation_prompt %}<|assistant|>" NEWLINE
             "{% else %}{{ eos_token }}{% endif %}"},
    {"phi4", TURNS("<|im_start|>", "<|im_sep|>", "<|im_end|>")},
    {"zephyr", TURNS("<|", "|>" NEWLINE, "{{ eos_token }}" NEWLINE)},
    {"deepseek",
     TAKE_SYSTEM "{{ bos_token }}{{ system }}{% for m in turns %}{% if m.role == 'user' %}"
                 "<" BAR "User" BAR ">{{ m.content }}{% else %}<" BAR "Assistant" BAR ">"
                 "{{ m.content.split('</think>')[-1] }}<" BAR "end\u2581of\u2581sentence" BAR ">"
                 "{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}<" BAR "Assistant" BAR ">{% endif %}"},
    {"qwen3",
     "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
     "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
     "{% for m in messages %}<|im_start|>{{ m.role }}" NEWLINE "{% if m.role == 'assistant' %}"
     "{% set answer = m.content.split('</think>')[-1].lstrip('\\n') if '</think>' in m.content "
     "else m.content %}"
     "{% set thought = m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1]"
     ".lstrip('\\n') if '</think>' in m.content else '' %}"
     "{% if loop.index0 > ns.last and (loop.last or thought) %}<think>" NEWLINE
     "{{ thought.strip('\\n') }}" NEWLINE "</think>" NEWLINE NEWLINE "{{ answer.lstrip('\\n') }}"
     "{% else %}{{ answer }}{% endif %}{% else %}{{ m.content }}{% endif %}<|im_end|>" NEWLINE
     "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant" NEWLINE
     "{% if enable_thinking is defined and enable_thinking is false %}<think>" NEWLINE NEWLINE
     "</think>" NEWLINE NEWLINE "{% endif %}{% endif %}"},
    {"lfm2", "{{ bos_token }}" TURNS("<|im_start|>", NEWLINE, "<|im_end|>" NEWLINE)},
    {"gpt-oss",
     "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI." NEWLINE
     "Knowledge cutoff: 2024-06" NEWLINE
     "Current date: {{ strftime_now('%Y-%m-%d') }}" NEWLINE NEWLINE
     "Reasoning: {{ reasoning_effort | default('medium') }}" NEWLINE NEWLINE
     "# Valid channels: analysis, commentary, final. Channel must be included for every message."
     "<|end|>" TAKE_SYSTEM
     "{% if system %}<|start|>developer<|message|># Instructions" NEWLINE NEWLINE
     "{{ system }}" NEWLINE NEWLINE "<|end|>{% endif %}"
     "{% for m in turns %}{% if m.role == 'user' %}<|start|>user<|message|>{{ m.content }}<|end|>"
     "{% elif m.role == 'assistant' %}<|start|>assistant<|channel|>final<|message|>"
     "{{ m.content }}{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"},
};

}  // namespace

std::span<const BuiltinTemplate> builtin_chat_templates() { return kTemplates; }

}  // namespace engine
