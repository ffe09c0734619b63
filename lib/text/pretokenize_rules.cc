// Expressions in the syntax of PCRE2 with UTF and UCP. Non-ASCII characters are escapes, so that no
// editor can normalise them. SPACE stands for \s: PCRE2's own also takes U+180E, which is no white
// space.
#include "lib/text/pretokenize_rules.h"

namespace engine {

namespace {

#define SPACE R"re(\p{White_Space})re"
#define NOT_SPACE R"re(\P{White_Space})re"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL_SPACES SPACE "+(?!" NOT_SPACE ")|" SPACE "+"
#define SPACES SPACE "*[\\r\\n]+|" TAIL_SPACES
#define MARKS_OF(end) " ?[^" SPACE R"re(\p{L}\p{N}]+)re" end
#define BEFORE_WORD R"re([^\r\n\p{L}\p{N}]?)re"
#define UPPER R"re([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])re"
#define LOWER R"re([\p{Ll}\p{Lm}\p{Lo}\p{M}])re"

#define GPT2 R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+|)re" MARKS_OF("|") TAIL_SPACES
#define WORD_OF(letters) BEFORE_WORD letters "+|"
#define LETTERS_DIGITS(letters, digits) \
  WORD_OF(letters) digits "|" MARKS_OF(R"re([\r\n]*|)re") SPACES
#define LLAMA3_DIGITS(digits) CONTRACTION "|" LETTERS_DIGITS(R"re(\p{L})re", digits)
#define CASED_OF(upper, lower, suffix, digits)                                                 \
  BEFORE_WORD upper "*" lower "+" suffix "|" BEFORE_WORD upper "+" lower "*" suffix "|" digits \
                    "|" MARKS_OF(R"re([\r\n/]*|)re") SPACES
#define CASED(suffix, digits) CASED_OF(UPPER, LOWER, suffix, digits)
// The same letters without those of the Han script, which PCRE2 has no intersection for: all
// categories that are no such letters are left out instead.
#define UPPER_NO_HAN R"re([^\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])re"
#define LOWER_NO_HAN R"re([^\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}\p{sc:Han}])re"

// Letters of cased scripts, as DeepSeek LLM lists them.
#define DEEPSEEK_LETTERS                                                                        \
  R"re([A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF})re"  \
  R"re(\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D})re" \
  R"re(\x{037F}\x{0386}\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5})re"          \
  R"re(\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}\x{10A0}-\x{10C5})re"                 \
  R"re(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})re"                 \
  R"re(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})re"                 \
  R"re(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B})re" \
  R"re(\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4})re" \
  R"re(\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC})re"                 \
  R"re(\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115})re"          \
  R"re(\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139})re"  \
  R"re(\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B})re"          \
  R"re(\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B})re" \
  R"re(\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})re"                 \
  R"re(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A})re"                 \
  R"re(\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2})re"         \
  R"re(\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)re"

constexpr std::string_view kDigit = R"re(\p{N})re";
constexpr std::string_view kDigits = R"re(\p{N}+)re";
constexpr std::string_view kDigits1To3 = R"re(\p{N}{1,3})re";
constexpr std::string_view kAsciiThrees = "[0-9][0-9][0-9]";
constexpr std::string_view kLineEnd = R"re([\r\n])re";
constexpr std::string_view kDeepSeekCjk =
    R"re([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re";

constexpr std::string_view kGpt2[] = {GPT2};
constexpr std::string_view kDigitGpt2[] = {kDigit, GPT2};
constexpr std::string_view kLlama3[] = {LLAMA3_DIGITS(R"re(\p{N}{1,3})re")};
constexpr std::string_view kQwen2[] = {LLAMA3_DIGITS(R"re(\p{N})re")};
constexpr std::string_view kQwen35[] = {CONTRACTION "|" BEFORE_WORD
                                                    R"re([\p{L}\p{M}]+|\p{N}| ?[^)re" SPACE
                                                    R"re(\p{L}\p{M}\p{N}]+[\r\n]*|)re" SPACES};
constexpr std::string_view kO200k[] = {CASED(CONTRACTION "?", R"re(\p{N}{1,3})re")};
constexpr std::string_view kTekken[] = {CASED("", R"re(\p{N})re")};
#define DEEPSEEK_KANA R"re([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re"
#define DEEPSEEK_WORDS                                      \
  R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|)re" \
  R"re([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+)re"
#define DEEPSEEK3 DEEPSEEK_WORDS R"re([\r\n]*|)re" SPACES
constexpr std::string_view kDeepSeek3[] = {kDigits1To3, DEEPSEEK_KANA, DEEPSEEK3};
constexpr std::string_view kSpark[] = {kDigits1To3, DEEPSEEK_KANA,
                                       DEEPSEEK_WORDS R"re([\r\n]*|[\r\n]|)re" TAIL_SPACES, kDigit};
constexpr std::string_view kDeepSeekCoder[] = {kLineEnd, SPACE R"re(?\p{L}+)re",
                                               SPACE R"re(?\p{P}+)re", kDeepSeekCjk, kDigit};
constexpr std::string_view kDeepSeekLlm[] = {
    kLineEnd,
    SPACE "?" DEEPSEEK_LETTERS,
    SPACE R"re(?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)re",
    SPACE "+$",
    kDeepSeekCjk,
    kDigits};
constexpr std::string_view kFalcon[] = {R"re([\p{P}$+<=>^`|~]+)re", GPT2, kAsciiThrees};
// Without the backtick that Falcon's first stage has.
constexpr std::string_view kDefault[] = {R"re([\p{P}$+<=>^~|]+)re", GPT2, kDigits, kAsciiThrees};
#define BLOOM_WORDS \
  " ?[^(" SPACE R"re(|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)re"
constexpr std::string_view kBloom[] = {BLOOM_WORDS};
constexpr std::string_view kViking[] = {BLOOM_WORDS, kDigit};
constexpr std::string_view kSuperBpe[] = {kDigits, kThreesFromRight};
constexpr std::string_view kBailing[] = {
    "'(?i:[sdmt]|ll|ve|re)|"
    R"re([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^)re" SPACE R"re(\p{L}\p{N}]++[\r\n]*|)re" SPACE
    R"re(*[\r\n]|)re" TAIL_SPACES};
constexpr std::string_view kSeedCoder[] = {
    CONTRACTION "|" BEFORE_WORD R"re(\p{L}+|\p{N}| ?[^)re" SPACE R"re(\p{L}\p{N}\r\n]+|)re" SPACES};

constexpr std::string_view kUfakZeka[] = {LETTERS_DIGITS(R"re(\p{L})re", R"re(\p{N})re")};
constexpr std::string_view kMiniCpm5[] = {kDigits1To3, LLAMA3_DIGITS(R"re(\p{N}+)re")};
constexpr std::string_view kK2Horizon[] = {
    CONTRACTION "|" LETTERS_DIGITS(R"re([\p{L}\p{M}\x{200C}\x{200D}])re", R"re(\p{N}{1,3})re")};
constexpr std::string_view kKimi[] = {R"re(\p{sc:Han}+|)re" CASED_OF(
    UPPER_NO_HAN, LOWER_NO_HAN, CONTRACTION "?", R"re(\p{N}{1,3})re")};
constexpr std::string_view kAya[] = {kThreesBeforeBoundary,
                                     CASED(CONTRACTION "?", R"re(\p{N}{1,3})re")};
// Runs of white space by powers of two. After white space that is no line end, no line end can
// follow within the run: without that condition each piece would scan the rest of the run for one.
#define RUN_OF(n) SPACE "{" n "}(?!" NOT_SPACE ")|"
constexpr std::string_view kJais2[] = {
    CONTRACTION "|" WORD_OF(R"re(\p{L})re") R"re(\p{N}{1,3}|)re" MARKS_OF(
        R"re([\r\n]*|)re") R"re((?<![^\P{White_Space}\r\n]))re" SPACE
                           R"re(*[\r\n]+|)re" RUN_OF("512") RUN_OF("256") RUN_OF("128") RUN_OF("64")
                               RUN_OF("32") RUN_OF("16") RUN_OF("8") RUN_OF("4") RUN_OF("1,2") SPACE
    "{1}"};
// Possessive, which changes nothing but the memory that a long run needs.
constexpr std::string_view kExaoneMoe[] = {
    CONTRACTION "|" BEFORE_WORD
                R"re((?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}|)re" MARKS_OF(R"re([\r\n]?|)re")
                    SPACE R"re(*[\r\n]|)re" TAIL_SPACES};
constexpr std::string_view kYoutu[] = {
    R"re([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|)re"
    R"re([\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019}\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001})re"
    R"re(-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}]+|)re" DEEPSEEK_KANA,
    CASED(CONTRACTION "?", R"re(\p{N})re")};
// Scripts that are written without spaces.
constexpr std::string_view kAfMoe[] = {
    kThreesAlone,
    R"re([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{F900}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})re"
    R"re(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E00}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF})re"
    R"re(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)re",
    DEEPSEEK3};
constexpr std::string_view kChameleon[] = {
    "<sentinel:[0-9]+>",           "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    R"re(([\t\n]|    |  ))re",     kDigit,
    R"re([\p{P}!-/:-@\[-`{-~])re", GPT2};
constexpr std::string_view kNewlineRuns[] = {"\\n+"};
constexpr std::string_view kEscapedWords[] = {"\\n+", R"re(\x{2581}[^\x{2581}]*)re"};

constexpr PretokenizeRule rule(std::string_view name, std::span<const std::string_view> stages) {
  return {name, stages};
}
constexpr PretokenizeRule llama3(std::string_view name) { return {name, kLlama3, true, true}; }
constexpr PretokenizeRule with_nfc(PretokenizeRule plain) {
  plain.nfc = true;
  return plain;
}
constexpr PretokenizeRule whole_words(PretokenizeRule plain) {
  plain.ignore_merges = true;
  return plain;
}
constexpr PretokenizeRule escaped(std::string_view name, std::span<const std::string_view> stages,
                                  bool starts_with_space) {
  PretokenizeRule made = rule(name, stages);
  made.alphabet = Alphabet::kEscapedSpaces;
  made.starts_with_space = starts_with_space;
  return made;
}

constexpr PretokenizeRule kRules[] = {
    rule("default", kDefault),
    rule("gpt-2", kGpt2),
    rule("phi-2", kGpt2),
    rule("jais", kGpt2),
    rule("exaone4", kGpt2),
    rule("gigachat", kGpt2),
    rule("a.x-4.0", kGpt2),
    rule("mellum", kGpt2),
    rule("trillion", kGpt2),
    rule("granite-docling", kGpt2),
    rule("jina-es", kGpt2),
    rule("jina-de", kGpt2),
    rule("jina-v1-en", kGpt2),
    rule("jina-v2-es", kGpt2),
    rule("jina-v2-de", kGpt2),
    rule("jina-v2-code", kGpt2),
    rule("roberta-bpe", kGpt2),
    with_nfc(rule("modern-bert", kGpt2)),
    with_nfc(rule("mpt", kGpt2)),
    with_nfc(rule("olmo", kGpt2)),
    rule("smollm", kDigitGpt2),
    rule("starcoder", kDigitGpt2),
    rule("refact", kDigitGpt2),
    rule("codeshell", kDigitGpt2),
    rule("minerva-7b", kDigitGpt2),
    rule("mellum2", kDigitGpt2),
    with_nfc(rule("exaone", kDigitGpt2)),
    with_nfc(rule("command-r", kDigitGpt2)),
    llama3("llama-bpe"),
    llama3("llama3"),
    llama3("llama-v3"),
    llama3("falcon3"),
    llama3("falcon-h1"),
    llama3("pixtral"),
    llama3("midm-2.0"),
    llama3("lfm2"),
    llama3("jina-v5-nano"),
    rule("dbrx", kLlama3),
    rule("smaug-bpe", kLlama3),
    rule("chatglm-bpe", kLlama3),
    rule("glm4", kLlama3),
    with_nfc(rule("qwen2", kQwen2)),
    with_nfc(rule("deepseek-r1-qwen", kQwen2)),
    with_nfc(rule("stablelm2", kQwen2)),
    with_nfc(rule("hunyuan", kQwen2)),
    with_nfc(rule("f2llmv2", kQwen2)),
    rule("megrez", kQwen2),
    rule("kormo", kQwen2),
    rule("grok-2", kQwen2),
    rule("solar-open", kQwen2),
    rule("ufakzeka", kUfakZeka),
    rule("qwen35", kQwen35),
    rule("gpt-4o", kO200k),
    rule("llama4", kO200k),
    rule("kanana2", kO200k),
    rule("minimax-m2", kO200k),
    rule("talkie", kO200k),
    whole_words(rule("granite-embed-multi-97m", kO200k)),
    {"tekken", kTekken, true, true},
    rule("deepseek-v3", kDeepSeek3),
    rule("hunyuan-dense", kDeepSeek3),
    rule("joyai-llm", kDeepSeek3),
    rule("hy_v4", kDeepSeek3),
    rule("spark2_5", kSpark),
    rule("deepseek-llm", kDeepSeekLlm),
    rule("deepseek-coder", kDeepSeekCoder),
    rule("falcon", kFalcon),
    rule("bloom", kBloom),
    rule("poro-chat", kBloom),
    rule("gpt3-finnish", kBloom),
    rule("viking", kViking),
    rule("superbpe", kSuperBpe),
    rule("bailingmoe", kBailing),
    rule("bailingmoe2", kBailing),
    rule("llada-moe", kBailing),
    rule("seed-coder", kSeedCoder),
    rule("kimi-k2", kKimi),
    rule("tiny_aya", kAya),
    rule("cohere2moe", kAya),
    rule("jais-2", kJais2),
    rule("exaone-moe", kExaoneMoe),
    whole_words(rule("youtu", kYoutu)),
    rule("afmoe", kAfMoe),
    {"chameleon", kChameleon, false, true},
    whole_words(rule("minicpm5", kMiniCpm5)),
    rule("k2-horizon", kK2Horizon),
    escaped("gemma4", kNewlineRuns, false),
    escaped("granite-embed-multi-311m", kNewlineRuns, false),
    escaped("sarvam-moe", kNewlineRuns, false),
    escaped("mmbert", kEscapedWords, true),
};

constexpr UnsupportedPretokenizer kUnsupported[] = {
    {"whitespace", "its words have no byte alphabet, and no published vocabulary was seen"},
    {"laguna", "programs that write it disagree about its rule"},
    {"cohere2_moe", "programs that write it disagree about its rule"},
    {"glm5", "only one program writes it, and its rule is not confirmed"},
    {"openpangu", "only one program writes it, and its rule is not confirmed"},
};

}  // namespace

std::span<const PretokenizeRule> pretokenize_rules() { return kRules; }
std::span<const UnsupportedPretokenizer> unsupported_pretokenizers() { return kUnsupported; }

const PretokenizeRule* find_pretokenize_rule(std::string_view name) {
  for (const PretokenizeRule& candidate : kRules) {
    if (candidate.name == name) return &candidate;
  }
  return nullptr;
}

}  // namespace engine
