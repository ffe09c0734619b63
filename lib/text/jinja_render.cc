// Walks the syntax tree with a chain of scopes.
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "lib/text/jinja.h"
#include "lib/text/jinja_library.h"

namespace engine::jinja {

namespace {

constexpr int32_t kMaxValueDepth = 64;
constexpr int kMaxDepth = 100;  // macros in macros, loops in loops

using Scope = absl::flat_hash_map<std::string, Value>;
enum class Flow { kOn, kBreak, kContinue };

// The last of equal keys wins, in the place of the first.
void put_entry(const std::string& key, Value value, Dict* entries) {
  for (auto& [name, old] : *entries) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  entries->emplace_back(key, std::move(value));
}

class Renderer {
 public:
  Renderer(const Value& variables, const RenderOptions& options, uint64_t input_bytes)
      : options_(options), budget_(input_bytes) {
    Scope globals;
    for (const auto& [name, value] : variables.as_dict()) globals[name] = value;
    const auto function = [&](const char* name, Builtin builtin) {
      globals.try_emplace(name, Value::callable({builtin, nullptr}));
    };
    function("namespace", Builtin::kNamespace);
    function("range", Builtin::kRange);
    function("raise_exception", Builtin::kRaise);
    function("dict", Builtin::kDict);
    if (options.unix_time.has_value()) function("strftime_now", Builtin::kStrftimeNow);
    scopes_.push_back(std::move(globals));
  }

  absl::StatusOr<Text> run(const Block& block) {
    Text out;
    ENGINE_ASSIGN_OR_RETURN(const Flow flow, render_block(block, &out));
    if (flow != Flow::kOn) return template_error("break or continue outside of a loop");
    return out;
  }

 private:
  struct Depth {
    explicit Depth(int* depth) : depth_(depth) { ++*depth_; }
    ~Depth() { --*depth_; }
    int* depth_;
  };
  // A scope while it lives.
  struct Inner {
    explicit Inner(std::vector<Scope>* scopes) : scopes_(scopes) { scopes_->emplace_back(); }
    ~Inner() { scopes_->pop_back(); }
    std::vector<Scope>* scopes_;
  };

  absl::Status put(const Text& text, Text* out) {
    if (text.is_cut) return template_error("a value prints as more than a chat template needs");
    ENGINE_RETURN_IF_ERROR(budget_.make(text.chars.size()));
    out->append(text);
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> render_block(const Block& block, Text* out) {
    const Depth depth(&depth_);
    if (depth_ > kMaxDepth) return template_error("the template nests too deeply");
    for (const Node& node : block) {
      ENGINE_RETURN_IF_ERROR(budget_.step());
      ENGINE_ASSIGN_OR_RETURN(const Flow flow, render_node(node, out));
      if (flow != Flow::kOn) return flow;
    }
    return Flow::kOn;
  }

  absl::StatusOr<Flow> render_node(const Node& node, Text* out) {
    switch (node.kind) {
      case Node::Kind::kText:
        ENGINE_RETURN_IF_ERROR(put(Text(node.text, false), out));
        return Flow::kOn;
      case Node::Kind::kOutput: {
        ENGINE_ASSIGN_OR_RETURN(const Value value, evaluate(*node.expr));
        ENGINE_RETURN_IF_ERROR(put(to_text(value), out));
        return Flow::kOn;
      }
      case Node::Kind::kIf:
        for (const auto& [condition, body] : node.branches) {
          bool good = condition == nullptr;
          if (!good) {
            ENGINE_ASSIGN_OR_RETURN(const Value value, evaluate(*condition));
            good = value.truth();
          }
          if (good) return render_block(body, out);
        }
        return Flow::kOn;
      case Node::Kind::kFor: return render_for(node, out);
      case Node::Kind::kSet: {
        ENGINE_ASSIGN_OR_RETURN(const Value value, evaluate(*node.expr));
        ENGINE_RETURN_IF_ERROR(assign(node.targets, value));
        return Flow::kOn;
      }
      case Node::Kind::kSetBlock:
      case Node::Kind::kFilter: {
        Text body;
        {
          const Inner scope(&scopes_);
          ENGINE_ASSIGN_OR_RETURN(const Flow flow, render_block(node.body, &body));
          if (flow != Flow::kOn) return template_error("break or continue inside of a block");
        }
        Value value = Value::text(std::move(body));
        if (node.expr != nullptr) {
          ENGINE_ASSIGN_OR_RETURN(value, filter(*node.expr, &value));
        }
        if (node.kind == Node::Kind::kFilter) {
          ENGINE_RETURN_IF_ERROR(put(to_text(value), out));
        } else {
          ENGINE_RETURN_IF_ERROR(assign(node.targets, value));
        }
        return Flow::kOn;
      }
      case Node::Kind::kMacro:
        scopes_.back()[node.macro->name] = Value::callable({Builtin::kNamespace, node.macro.get()});
        return Flow::kOn;
      case Node::Kind::kBlock: return render_block(node.body, out);
      case Node::Kind::kBreak: return Flow::kBreak;
      case Node::Kind::kContinue: return Flow::kContinue;
    }
    return Flow::kOn;
  }

  // Whether a list, dict or namespace may hold a value.
  static absl::Status check_held(const Value& value) {
    if (value.is_namespace()) return template_error("a namespace inside of another value");
    if (value.depth() > kMaxValueDepth) return template_error("a value nests too deeply");
    return absl::OkStatus();
  }

  absl::Status assign(const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      const size_t dot = targets[0].find('.');
      if (dot == std::string::npos) {
        scopes_.back()[targets[0]] = value;
        return absl::OkStatus();
      }
      const Value* object = find(targets[0].substr(0, dot));
      if (object == nullptr || !object->is_namespace()) {
        return template_error(absl::StrCat("'", targets[0], "' cannot be set"));
      }
      ENGINE_RETURN_IF_ERROR(budget_.make(sizeof(Value)));
      ENGINE_RETURN_IF_ERROR(check_held(value));
      object->set(targets[0].substr(dot + 1), value);
      return absl::OkStatus();
    }
    if (!value.is_list() || value.as_list().size() != targets.size()) {
      return template_error(
          absl::StrCat(value.type_name(), " does not unpack into ", targets.size(), " names"));
    }
    for (size_t i = 0; i < targets.size(); ++i) scopes_.back()[targets[i]] = value.as_list()[i];
    return absl::OkStatus();
  }

  absl::StatusOr<Flow> render_for(const Node& node, Text* out) {
    ENGINE_ASSIGN_OR_RETURN(const Value over, evaluate(*node.expr));
    ENGINE_ASSIGN_OR_RETURN(List items, iterate(over, &budget_));
    if (node.condition != nullptr) {
      List kept;
      for (const Value& item : items) {
        const Inner scope(&scopes_);
        ENGINE_RETURN_IF_ERROR(budget_.step());
        ENGINE_RETURN_IF_ERROR(assign(node.targets, item));
        ENGINE_ASSIGN_OR_RETURN(const Value good, evaluate(*node.condition));
        if (good.truth()) kept.push_back(item);
      }
      items = std::move(kept);
    }
    const int64_t n = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < n; ++i) {
      ENGINE_RETURN_IF_ERROR(budget_.step());
      const Inner scope(&scopes_);
      const auto at = [&](int64_t j) {
        return j >= 0 && j < n ? items[static_cast<size_t>(j)] : Value::undefined("loop item");
      };
      scopes_.back()["loop"] = Value::dict({{"index", Value::integer(i + 1)},
                                            {"index0", Value::integer(i)},
                                            {"revindex", Value::integer(n - i)},
                                            {"revindex0", Value::integer(n - i - 1)},
                                            {"first", Value::boolean(i == 0)},
                                            {"last", Value::boolean(i + 1 == n)},
                                            {"length", Value::integer(n)},
                                            {"previtem", at(i - 1)},
                                            {"nextitem", at(i + 1)}});
      ENGINE_RETURN_IF_ERROR(assign(node.targets, at(i)));
      ENGINE_ASSIGN_OR_RETURN(const Flow flow, render_block(node.body, out));
      if (flow == Flow::kBreak) break;
    }
    if (n == 0) {
      const Inner scope(&scopes_);
      return render_block(node.otherwise, out);
    }
    return Flow::kOn;
  }

  const Value* find(std::string_view name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].find(name);
      if (found != scopes_[i].end()) return &found->second;
    }
    return nullptr;
  }

  StatusOrValue evaluate(const Expr& expr) {
    ENGINE_RETURN_IF_ERROR(budget_.step());
    const Depth depth(&expr_depth_);
    if (expr_depth_ > 4 * kMaxDepth) return template_error("an expression nests too deeply");
    const auto child = [&](size_t i) -> StatusOrValue {
      return i < expr.children.size() && expr.children[i] != nullptr ? evaluate(*expr.children[i])
                                                                     : Value();
    };
    switch (expr.kind) {
      case Expr::Kind::kLiteral: return expr.value;
      case Expr::Kind::kName: {
        const Value* found = find(expr.name);
        return found == nullptr ? Value::undefined(expr.name) : *found;
      }
      case Expr::Kind::kList:
      case Expr::Kind::kTuple: {
        ENGINE_RETURN_IF_ERROR(budget_.make(expr.children.size() * sizeof(Value)));
        List items;
        for (size_t i = 0; i < expr.children.size(); ++i) {
          ENGINE_ASSIGN_OR_RETURN(Value value, child(i));
          ENGINE_RETURN_IF_ERROR(check_held(value));
          items.push_back(std::move(value));
        }
        return Value::list(std::move(items), expr.kind == Expr::Kind::kTuple);
      }
      case Expr::Kind::kDict: {
        ENGINE_RETURN_IF_ERROR(budget_.make(expr.children.size() * sizeof(Value)));
        Dict entries;
        for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
          ENGINE_ASSIGN_OR_RETURN(const Value key, child(i));
          ENGINE_ASSIGN_OR_RETURN(Value value, child(i + 1));
          if (!key.is_text()) return template_error("the keys of a dict must be strings");
          ENGINE_RETURN_IF_ERROR(check_held(value));
          put_entry(key.chars(), std::move(value), &entries);
        }
        return Value::dict(std::move(entries));
      }
      case Expr::Kind::kUnary: {
        ENGINE_ASSIGN_OR_RETURN(const Value value, child(0));
        if (expr.name == "not") return Value::boolean(!value.truth());
        if (!value.is_number())
          return template_error(absl::StrCat("'", expr.name, "' wants a number"));
        if (expr.name == "+") return value;
        if (value.is_real()) return Value::real(-value.as_real());
        if (value.as_integer() == INT64_MIN) return template_error("an integer overflows");
        return Value::integer(-value.as_integer());
      }
      case Expr::Kind::kBinary: return binary(expr);
      case Expr::Kind::kCondition: {
        ENGINE_ASSIGN_OR_RETURN(const Value condition, child(0));
        return child(condition.truth() ? 1 : 2);
      }
      case Expr::Kind::kAttribute: {
        ENGINE_ASSIGN_OR_RETURN(const Value object, child(0));
        return attribute(object, expr.name);
      }
      case Expr::Kind::kIndex: {
        ENGINE_ASSIGN_OR_RETURN(const Value object, child(0));
        ENGINE_ASSIGN_OR_RETURN(const Value key, child(1));
        return item(object, key, &budget_);
      }
      case Expr::Kind::kSlice: {
        ENGINE_ASSIGN_OR_RETURN(const Value object, child(0));
        ENGINE_ASSIGN_OR_RETURN(const Value begin, child(1));
        ENGINE_ASSIGN_OR_RETURN(const Value end, child(2));
        ENGINE_ASSIGN_OR_RETURN(const Value step, child(3));
        return slice(object, begin, end, step, &budget_);
      }
      case Expr::Kind::kCall: return call(expr);
      case Expr::Kind::kFilter: return filter(expr, nullptr);
      case Expr::Kind::kTest: {
        ENGINE_ASSIGN_OR_RETURN(const Value value, child(0));
        ENGINE_ASSIGN_OR_RETURN(const CallArguments args, arguments(expr.args));
        ENGINE_ASSIGN_OR_RETURN(const bool good, apply_test(expr.name, value, args));
        return Value::boolean(good != expr.negated);
      }
    }
    return Value();
  }

  // A chain of filters; `input` stands at its innermost place where that is empty.
  StatusOrValue filter(const Expr& expr, const Value* input) {
    Value value = input == nullptr ? Value() : *input;
    if (!expr.children.empty() && expr.children[0] != nullptr) {
      const Expr& inner = *expr.children[0];
      ENGINE_ASSIGN_OR_RETURN(value, inner.kind == Expr::Kind::kFilter && input != nullptr
                                         ? filter(inner, input)
                                         : evaluate(inner));
    }
    ENGINE_ASSIGN_OR_RETURN(const CallArguments args, arguments(expr.args));
    return apply_filter(expr.name, value, args, &budget_);
  }

  absl::StatusOr<CallArguments> arguments(const Arguments& given) {
    CallArguments args;
    for (const ExprPtr& expr : given.positional) {
      ENGINE_ASSIGN_OR_RETURN(Value value, evaluate(*expr));
      args.positional.push_back(std::move(value));
    }
    for (const auto& [name, expr] : given.named) {
      ENGINE_ASSIGN_OR_RETURN(Value value, evaluate(*expr));
      args.named.emplace_back(name, std::move(value));
    }
    return args;
  }

  StatusOrValue binary(const Expr& expr) {
    const std::string& op = expr.name;
    ENGINE_ASSIGN_OR_RETURN(const Value left, evaluate(*expr.children[0]));
    if (op == "and" && !left.truth()) return left;
    if (op == "or" && left.truth()) return left;
    ENGINE_ASSIGN_OR_RETURN(const Value right, evaluate(*expr.children[1]));
    if (op == "and" || op == "or") return right;
    if (op == "==") return Value::boolean(equal(left, right));
    if (op == "!=") return Value::boolean(!equal(left, right));
    if (op == "in" || op == "not in") {
      ENGINE_ASSIGN_OR_RETURN(const bool found, contains(right, left));
      return Value::boolean(found == (op == "in"));
    }
    if (op == "<" || op == "<=" || op == ">" || op == ">=") {
      ENGINE_ASSIGN_OR_RETURN(const int order, compare(left, right));
      if (op == "<") return Value::boolean(order < 0);
      if (op == "<=") return Value::boolean(order <= 0);
      return Value::boolean(op == ">" ? order > 0 : order >= 0);
    }
    if (op == "~") {
      Text text = to_text(left);
      const Text other = to_text(right);
      ENGINE_RETURN_IF_ERROR(budget_.make(text.chars.size() + other.chars.size()));
      text.append(other);
      return Value::text(std::move(text));
    }
    if (op == "+" && left.is_text() && right.is_text()) {
      Text text = left.as_text();
      ENGINE_RETURN_IF_ERROR(budget_.make(text.chars.size() + right.chars().size()));
      text.append(right.as_text());
      return Value::text(std::move(text));
    }
    if (op == "+" && left.is_list() && right.is_list()) {
      List items = left.as_list();
      ENGINE_RETURN_IF_ERROR(budget_.make((items.size() + right.as_list().size()) * sizeof(Value)));
      items.insert(items.end(), right.as_list().begin(), right.as_list().end());
      return Value::list(std::move(items), left.is_tuple());
    }
    if (op == "*" && left.is_text() && right.is_integer()) {
      const int64_t n = std::max<int64_t>(right.as_integer(), 0);
      if (n > 1'000'000) return template_error("a string is repeated too often");
      ENGINE_RETURN_IF_ERROR(budget_.make(static_cast<uint64_t>(n) * left.chars().size()));
      Text text;
      for (int64_t i = 0; i < n; ++i) text.append(left.as_text());
      return Value::text(std::move(text));
    }
    if (!left.is_number() || !right.is_number()) {
      return template_error(
          absl::StrCat("'", op, "' of ", left.type_name(), " and ", right.type_name()));
    }
    return arithmetic(op, left, right);
  }

  StatusOrValue call(const Expr& expr) {
    const Expr& target = *expr.children[0];
    ENGINE_ASSIGN_OR_RETURN(const CallArguments args, arguments(expr.args));
    if (target.kind == Expr::Kind::kAttribute) {
      ENGINE_ASSIGN_OR_RETURN(const Value object, evaluate(*target.children[0]));
      if (has_method(object, target.name)) return call_method(object, target.name, args, &budget_);
      ENGINE_ASSIGN_OR_RETURN(const Value member, attribute(object, target.name));
      if (member.is_callable()) return call_function(member.as_callable(), args);
      return template_error(absl::StrCat(object.type_name(), " has no method '", target.name, "'"));
    }
    ENGINE_ASSIGN_OR_RETURN(const Value function, evaluate(target));
    if (!function.is_callable()) {
      return template_error(absl::StrCat(
          function.is_undefined() ? absl::StrCat("'", function.undefined_name(), "' is undefined")
                                  : absl::StrCat(function.type_name(), " is no function")));
    }
    return call_function(function.as_callable(), args);
  }

  StatusOrValue call_function(const Callable& function, const CallArguments& args) {
    if (function.macro != nullptr) return call_macro(*function.macro, args);
    switch (function.builtin) {
      case Builtin::kNamespace:
      case Builtin::kDict: {
        Dict entries;
        if (!args.positional.empty()) {
          if (!args.positional[0].is_dict()) return template_error("dict wants a dict");
          for (const auto& [key, value] : args.positional[0].as_dict())
            put_entry(key, value, &entries);
        }
        for (const auto& [key, value] : args.named) {
          ENGINE_RETURN_IF_ERROR(check_held(value));
          put_entry(key, value, &entries);
        }
        if (function.builtin == Builtin::kDict) return Value::dict(std::move(entries));
        const Value made = Value::namespace_object();
        made.as_dict() = std::move(entries);
        return made;
      }
      case Builtin::kRange: return range(args, &budget_);
      case Builtin::kRaise:
        return error_at(Code::kChatTemplate, "tokenizer.chat_template", kNoOffset,
                        absl::StrCat("the chat template refuses this conversation: ",
                                     to_text(args.get(0, "message")).chars));
      case Builtin::kStrftimeNow: {
        const Value format = args.get(0, "format");
        if (!format.is_text()) return template_error("strftime_now wants a format");
        return format_time(options_.unix_time.value_or(0), format.chars());
      }
    }
    return Value();
  }

  StatusOrValue call_macro(const MacroNode& macro, const CallArguments& args) {
    if (args.positional.size() > macro.parameters.size()) {
      return template_error(absl::StrCat("macro '", macro.name, "' takes fewer arguments"));
    }
    const Depth depth(&depth_);
    if (depth_ > kMaxDepth) return template_error("macros nest too deeply");
    // A macro sees what is set at the top level, not its caller's names.
    std::vector<Scope> outer(std::make_move_iterator(scopes_.begin() + 1),
                             std::make_move_iterator(scopes_.end()));
    scopes_.resize(1);
    StatusOrValue made = run_macro(macro, args);
    scopes_.resize(1);
    for (Scope& scope : outer) scopes_.push_back(std::move(scope));
    return made;
  }

  StatusOrValue run_macro(const MacroNode& macro, const CallArguments& args) {
    const Inner scope(&scopes_);
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const auto& [name, otherwise] = macro.parameters[i];
      Value value = args.get(i, name);
      const bool given = i < args.positional.size() || !value.is_undefined();
      if (!given && otherwise != nullptr) {
        ENGINE_ASSIGN_OR_RETURN(value, evaluate(*otherwise));
      }
      scopes_.back()[name] = value.is_undefined() ? Value::undefined(name) : value;
    }
    Text out;
    ENGINE_ASSIGN_OR_RETURN(const Flow flow, render_block(*macro.body, &out));
    if (flow != Flow::kOn) return template_error("break or continue outside of a loop");
    return Value::text(std::move(out));
  }

  const RenderOptions options_;
  Budget budget_;
  std::vector<Scope> scopes_;
  int depth_ = 0;
  int expr_depth_ = 0;
};

uint64_t input_bytes(const Value& value, int depth = 0) {
  if (value.is_text()) return value.chars().size();
  uint64_t n = 1;
  if (depth > kMaxDepth) return n;
  if (value.is_list()) {
    for (const Value& element : value.as_list()) n += input_bytes(element, depth + 1);
  } else if (value.is_dict()) {
    for (const auto& [key, element] : value.as_dict())
      n += key.size() + input_bytes(element, depth + 1);
  }
  return n;
}

}  // namespace

absl::StatusOr<Text> render(const Block& block, const Value& variables,
                            const RenderOptions& options) {
  return Renderer(variables, options, input_bytes(variables)).run(block);
}

}  // namespace engine::jinja
