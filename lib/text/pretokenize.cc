// Runs the stages with PCRE2 over each well-formed stretch of the text.
#include "lib/text/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/text/utf8_scan.h"

namespace engine {

namespace {

struct FreePcre2 {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Regex = std::unique_ptr<pcre2_code, FreePcre2>;
using MatchData = std::unique_ptr<pcre2_match_data, FreePcre2>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreePcre2>;

// Backtracking that a linear expression may need: the library's default, and some for each byte.
constexpr uint64_t kMatchLimit = 10'000'000;
constexpr uint64_t kMatchLimitPerByte = 16;
constexpr uint32_t kHeapLimitKib = 256 * 1024;
// The text is known to be UTF-8; checking it at every match would make the whole quadratic.
constexpr uint32_t kMatchOptions = PCRE2_NO_UTF_CHECK;

std::string pcre2_message(int code) {
  PCRE2_UCHAR buffer[160] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

absl::StatusOr<Regex> compile(std::string_view expression, std::string_view rule_name) {
  int code = 0;
  PCRE2_SIZE offset = 0;
  Regex regex(pcre2_compile(units(expression), expression.size(), PCRE2_UTF | PCRE2_UCP, &code,
                            &offset, nullptr));
  if (regex == nullptr) {
    return error(Code::kInternal, absl::StrCat("expression of pre-tokenizer '", rule_name, "', at ",
                                               offset, ": ", pcre2_message(code)));
  }
  // Only a matter of speed: where machine code cannot be made, the interpreter runs the expression.
  pcre2_jit_compile(regex.get(), PCRE2_JIT_COMPLETE);
  return regex;
}

// What the stages of one call share.
struct Run {
  MatchData data;
  MatchContext context;
};

// pcre2_match, with the interpreter where compiled code runs out of its small stack.
int match(const pcre2_code* regex, std::string_view word, size_t from, uint32_t options,
          const Run& run) {
  const auto try_with = [&](uint32_t all_options) {
    return pcre2_match(regex, units(word), word.size(), from, all_options, run.data.get(),
                       run.context.get());
  };
  const int n = try_with(kMatchOptions | options);
  return n == PCRE2_ERROR_JIT_STACKLIMIT ? try_with(kMatchOptions | options | PCRE2_NO_JIT) : n;
}

absl::Status match_error(int code) {
  return error(Code::kTokenizer, "the pre-tokenizer expression failed: " + pcre2_message(code));
}

// Appends the ends of the matches and gaps of `word`, which begins at `begin`.
absl::Status cut(const pcre2_code* regex, std::string_view word, size_t begin, const Run& run,
                 std::vector<size_t>* ends) {
  size_t cut_at = 0;  // where the last piece ended
  const auto cut_to = [&](size_t end) {
    if (end > cut_at) ends->push_back(begin + end);
    cut_at = std::max(cut_at, end);
  };
  size_t from = 0;
  while (from < word.size()) {
    const int n = match(regex, word, from, 0, run);
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0) return match_error(n);
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(run.data.get());
    cut_to(span[0]);
    cut_to(span[1]);
    from = span[1];
    // An empty match only cuts.
    if (span[1] == span[0] && from < word.size()) from += utf8_step(word.substr(from)).n_bytes;
  }
  cut_to(word.size());
  return absl::OkStatus();
}

// What a stage does with what its expression finds.
enum class StageKind { kCut, kThreesFromRight, kThreesAlone, kThreesBeforeBoundary };

struct Stage {
  StageKind kind;
  Regex regex;
  Regex boundary;  // kThreesBeforeBoundary: what must not follow the digits
};

struct NamedStage {
  std::string_view name;
  StageKind kind;
  std::string_view expression;
};
constexpr NamedStage kNamedStages[] = {
    {kThreesFromRight, StageKind::kThreesFromRight, R"re(\d+)re"},
    {kThreesAlone, StageKind::kThreesAlone, R"re(\p{N}+)re"},
    {kThreesBeforeBoundary, StageKind::kThreesBeforeBoundary, R"re(\d+)re"},
};
constexpr std::string_view kWordCharacter = R"re(\G[\p{L}\p{M}\p{N}\p{Pc}])re";

// Appends the ends of the pieces of `word`, which begins at `begin`, when its runs of digits are cut
// into threes counted from their end. Like the empty matches of the published expression, with
// kThreesFromRight a run of whole threes is also cut from what stands before it, but not from what
// follows.
absl::Status cut_threes(const Stage& stage, std::string_view word, size_t begin, const Run& run,
                        std::vector<size_t>* ends) {
  std::vector<size_t> starts;
  size_t cut_at = 0;
  const auto cut_to = [&](size_t end) {
    if (end > cut_at) ends->push_back(begin + end);
    cut_at = std::max(cut_at, end);
  };
  const bool alone = stage.kind != StageKind::kThreesFromRight;
  for (size_t from = 0; from < word.size();) {
    const int n = match(stage.regex.get(), word, from, 0, run);
    if (n == PCRE2_ERROR_NOMATCH) break;
    if (n < 0) return match_error(n);
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(run.data.get());
    const size_t first = span[0];
    from = span[1];
    if (stage.boundary != nullptr && from < word.size()) {
      const int follows = match(stage.boundary.get(), word, from, 0, run);
      if (follows >= 0) continue;
      if (follows != PCRE2_ERROR_NOMATCH) return match_error(follows);
    }
    starts.clear();
    for (size_t at = first; at < from; at += utf8_step(word.substr(at)).n_bytes) {
      starts.push_back(at);
    }
    for (size_t i = 0; i < starts.size(); ++i) {
      if ((starts.size() - i) % 3 == 0 || (alone && i == 0)) cut_to(starts[i]);
    }
    if (alone) cut_to(from);
  }
  cut_to(word.size());
  return absl::OkStatus();
}

}  // namespace

struct Pretokenizer::Stages {
  std::vector<Stage> stages;

  absl::Status split(std::string_view text, size_t begin, const Run& run,
                     std::vector<size_t>* ends) const;
};

// `text` is well-formed and begins at `begin` of the whole text.
absl::Status Pretokenizer::Stages::split(std::string_view text, size_t begin, const Run& run,
                                         std::vector<size_t>* ends) const {
  std::vector<size_t> words{begin + text.size()};
  std::vector<size_t> cut_words;
  for (const Stage& stage : stages) {
    cut_words.clear();
    size_t from = begin;
    for (size_t end : words) {
      const std::string_view word = text.substr(from - begin, end - from);
      ENGINE_RETURN_IF_ERROR(stage.kind == StageKind::kCut
                                 ? cut(stage.regex.get(), word, from, run, &cut_words)
                                 : cut_threes(stage, word, from, run, &cut_words));
      from = end;
    }
    words.swap(cut_words);
  }
  ends->insert(ends->end(), words.begin(), words.end());
  return absl::OkStatus();
}

Pretokenizer::Pretokenizer(const PretokenizeRule* rule, std::unique_ptr<Stages> stages)
    : rule_(rule), stages_(std::move(stages)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

absl::StatusOr<Pretokenizer> Pretokenizer::create(const PretokenizeRule& rule) {
  auto stages = std::make_unique<Stages>();
  for (std::string_view expression : rule.stages) {
    Stage stage = {StageKind::kCut, nullptr, nullptr};
    for (const NamedStage& named : kNamedStages) {
      if (expression != named.name) continue;
      stage.kind = named.kind;
      expression = named.expression;
    }
    ENGINE_ASSIGN_OR_RETURN(stage.regex, compile(expression, rule.name));
    if (stage.kind == StageKind::kThreesBeforeBoundary) {
      ENGINE_ASSIGN_OR_RETURN(stage.boundary, compile(kWordCharacter, rule.name));
    }
    stages->stages.push_back(std::move(stage));
  }
  return Pretokenizer(&rule, std::move(stages));
}

absl::Status Pretokenizer::split(std::string_view text, std::vector<size_t>* ends) const {
  Run run;
  run.data.reset(pcre2_match_data_create(16, nullptr));
  run.context.reset(pcre2_match_context_create(nullptr));
  if (run.data == nullptr || run.context == nullptr) {
    return error(Code::kMemory, "no memory for matching the pre-tokenizer expressions");
  }
  const uint64_t limit = kMatchLimit + kMatchLimitPerByte * text.size();
  pcre2_set_match_limit(run.context.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  pcre2_set_heap_limit(run.context.get(), kHeapLimitKib);
  for (size_t at = 0; at < text.size();) {
    const Utf8Stretch stretch = utf8_stretch(text.substr(at));
    if (stretch.valid) {
      ENGINE_RETURN_IF_ERROR(stages_->split(text.substr(at, stretch.n_bytes), at, run, ends));
    } else {
      ends->push_back(at + stretch.n_bytes);
    }
    at += stretch.n_bytes;
  }
  return absl::OkStatus();
}

}  // namespace engine
