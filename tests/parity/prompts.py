"""The texts that the recorded goldens are made of: six prompts and the tricky tokenizer strings."""

# Gate G of the numerics rules: three English and three Arabic prompts, raw text, no chat template.
PROMPTS = {
    "en_river": "The river rose slowly through the night, and by morning the lower fields of "
    "the valley were",
    "en_recipe": "To make a simple vegetable soup for four people, you need two onions, "
    "three carrots and",
    "en_code": 'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n'
    "    if n < 2:\n        return n\n    return",
    "ar_city": "القاهرة مدينة كبيرة تقع على نهر",
    "ar_science": "الماء يتكون من الهيدروجين و",
    "ar_story": "في يوم من الأيام عاش رجل في قرية",
}

CAPITAL = "The capital of France is"

# Each string aims at one rule: white-space runs, digit runs, contractions, marks, joiners, byte
# fallback, special text.
TRICKY = [
    "",
    " ",
    "  ",
    "   x",
    "x   ",
    "\t",
    "\t\tx\t",
    "\n",
    "\n\n",
    "\n\n  \n",
    "a\r\nb\r\n\r\nc",
    "a\n \n  b\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\nc",
    "Hello world",
    " Hello  world ",
    "a->b",
    "f(x):\n\treturn x**2  # square",
    "1 12 123 1234 12345 1234567890",
    "3.14159e-10, 1,000,000 and 0x7f",
    "I'M don't we'll they'VE it's 'tis",
    "snake_case camelCase HTTPServer2 x86_64",
    "<|im_start|>user\nhi<|im_end|>",
    "<start_of_turn>user\nhi<end_of_turn>\n",
    "<bos><eos><pad><unk></s><s>",
    "<table><tr><td>&nbsp;</td></tr></table>",
    "½ ² ³ ﬁ Ⅷ ٣٤",
    "Kantō Kantō",
    "a\u2029b\u2028c",
    "\u00a0\u00a0x\u3000y\u200bz\ufeff",
    "Führer ÖÄÜ ß ẞ",
    "हिन्दी में मात्राएँ",
    "السَّلَامُ عَلَيْكُمْ",
    "שָׁלוֹם עוֹלָם",
    "ภาษาไทยไม่มีช่องว่าง",
    "日本語と中文混在の文章です。",
    "한국어 문장 하나",
    "Привет, как дела?",
    "👨‍👩‍👧‍👦 🇫🇷🇩🇪 👍🏽 ❤️",
    "\U00010348\U0001f9ff\U000e0041",
    "Cửa Việt",
    "▁▁ under▁score ▁x",
    "Ġ Ċ Âł",
    "!!!???...,,,;;;---___***///",
    "\x00a\x01b\x7f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]
