// Expressions of chat templates, with Jinja's precedence: the part of the parser that statements build on.
#ifndef ENGINE_LIB_TEXT_JINJA_PARSE_INL_H_
#define ENGINE_LIB_TEXT_JINJA_PARSE_INL_H_

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/text/jinja_ast.h"
#include "lib/text/jinja_lex.h"

namespace engine::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  using Kind = Token::Kind;
  using StatusOrExpr = absl::StatusOr<ExprPtr>;

  static constexpr int kMaxDepth = 200;  // of nested code

  // Counts one level of nesting while it lives.
  struct Level {
    explicit Level(int* depth) : depth_(depth) { ++*depth_; }
    ~Level() { --*depth_; }
    int* depth_;
  };

  const Token& here() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool is_op(std::string_view op) const {
    return here().kind == Kind::kOperator && here().text == op;
  }
  bool is_name(std::string_view name) const {
    return here().kind == Kind::kName && here().text == name;
  }
  bool take_op(std::string_view op) {
    if (!is_op(op)) return false;
    advance();
    return true;
  }
  bool take_name(std::string_view name) {
    if (!is_name(name)) return false;
    advance();
    return true;
  }
  absl::Status fail(std::string_view message) const {
    return template_error(absl::StrCat("at byte ", here().offset, ": ", message));
  }
  absl::Status want_op(std::string_view op) {
    return take_op(op) ? absl::OkStatus() : fail(absl::StrCat("expected '", op, "'"));
  }
  absl::Status want(Kind kind, std::string_view what) {
    if (here().kind != kind) return fail(absl::StrCat("expected ", what));
    advance();
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> want_name() {
    if (here().kind != Kind::kName) return fail("expected a name");
    std::string name = here().text;
    advance();
    return name;
  }

  // One expression, or several with commas as a tuple.
  StatusOrExpr parse_tuple() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr first, parse_expression());
    if (!is_op(",")) return first;
    ExprPtr tuple = make(Expr::Kind::kTuple);
    tuple->children.push_back(std::move(first));
    while (take_op(",")) {
      if (here().kind == Kind::kStatementEnd || here().kind == Kind::kOutputEnd || is_op(")"))
        break;
      ENGINE_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
      tuple->children.push_back(std::move(item));
    }
    return tuple;
  }

  StatusOrExpr parse_expression() {
    const Level level(&depth_);
    if (depth_ > kMaxDepth) return fail("an expression is nested too deeply");
    ENGINE_ASSIGN_OR_RETURN(ExprPtr expr, parse_or());
    while (take_name("if")) {
      ExprPtr choice = make(Expr::Kind::kCondition);
      ENGINE_ASSIGN_OR_RETURN(ExprPtr condition, parse_or());
      choice->children.push_back(std::move(condition));
      choice->children.push_back(std::move(expr));
      choice->children.push_back(nullptr);
      if (take_name("else")) {
        ENGINE_ASSIGN_OR_RETURN(choice->children[2], parse_expression());
      }
      expr = std::move(choice);
    }
    return expr;
  }

  StatusOrExpr parse_or() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_and());
    while (take_name("or")) {
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_and());
      left = binary("or", std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_and() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_not());
    while (take_name("and")) {
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_not());
      left = binary("and", std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_not() {
    if (!take_name("not")) return parse_comparison();
    const Level level(&depth_);
    if (depth_ > kMaxDepth) return fail("an expression is nested too deeply");
    ExprPtr expr = make(Expr::Kind::kUnary, "not");
    ENGINE_ASSIGN_OR_RETURN(ExprPtr operand, parse_not());
    expr->children.push_back(std::move(operand));
    return expr;
  }

  // The comparison that stands here, or "".
  std::string take_comparison() {
    constexpr std::array<std::string_view, 6> kOperators = {"==", "!=", "<", "<=", ">", ">="};
    for (std::string_view op : kOperators) {
      if (take_op(op)) return std::string(op);
    }
    if (take_name("in")) return "in";
    if (is_name("not") && next().kind == Kind::kName && next().text == "in") {
      advance();
      advance();
      return "not in";
    }
    return "";
  }

  StatusOrExpr parse_comparison() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_sum());
    bool compared = false;
    for (std::string op = take_comparison(); !op.empty(); op = take_comparison()) {
      if (compared) return fail("chains of comparisons are not supported");
      compared = true;
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_sum());
      left = binary(std::move(op), std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_sum() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_concat());
    while (is_op("+") || is_op("-")) {
      std::string op = here().text;
      advance();
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_concat());
      left = binary(std::move(op), std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_concat() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_product());
    while (take_op("~")) {
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_product());
      left = binary("~", std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_product() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_power());
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      std::string op = here().text;
      advance();
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_power());
      left = binary(std::move(op), std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_power() {
    ENGINE_ASSIGN_OR_RETURN(ExprPtr left, parse_unary(true));
    while (take_op("**")) {
      ENGINE_ASSIGN_OR_RETURN(ExprPtr right, parse_unary(true));
      left = binary("**", std::move(left), std::move(right));
    }
    return left;
  }

  StatusOrExpr parse_unary(bool with_filters) {
    const Level level(&depth_);
    if (depth_ > kMaxDepth) return fail("an expression is nested too deeply");
    ExprPtr expr;
    if (is_op("-") || is_op("+")) {
      expr = make(Expr::Kind::kUnary, here().text);
      advance();
      ENGINE_ASSIGN_OR_RETURN(ExprPtr operand, parse_unary(false));
      expr->children.push_back(std::move(operand));
    } else {
      ENGINE_ASSIGN_OR_RETURN(expr, parse_primary());
      ENGINE_ASSIGN_OR_RETURN(expr, parse_postfix(std::move(expr)));
    }
    return with_filters ? parse_filters(std::move(expr), false) : std::move(expr);
  }

  StatusOrExpr parse_primary() {
    const Token token = here();
    ExprPtr expr = make(Expr::Kind::kLiteral);
    switch (token.kind) {
      case Kind::kString: {
        std::string text;
        while (here().kind == Kind::kString) {  // neighbours are one
          text += here().text;
          advance();
        }
        expr->value = Value::text(text);
        return expr;
      }
      case Kind::kInteger: {
        int64_t number = 0;
        const auto end = token.text.data() + token.text.size();
        if (std::from_chars(token.text.data(), end, number).ec != std::errc()) {
          return fail("an integer is too large");
        }
        advance();
        expr->value = Value::integer(number);
        return expr;
      }
      case Kind::kReal: {
        double number = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        advance();
        expr->value = Value::real(number);
        return expr;
      }
      case Kind::kName:
        advance();
        if (token.text == "true" || token.text == "True") {
          expr->value = Value::boolean(true);
        } else if (token.text == "false" || token.text == "False") {
          expr->value = Value::boolean(false);
        } else if (token.text == "none" || token.text == "None") {
          expr->value = Value::none();
        } else {
          expr->kind = Expr::Kind::kName;
          expr->name = token.text;
        }
        return expr;
      default: break;
    }
    if (take_op("(")) {
      if (take_op(")")) return make(Expr::Kind::kTuple);
      ENGINE_ASSIGN_OR_RETURN(expr, parse_tuple());
      ENGINE_RETURN_IF_ERROR(want_op(")"));
      return expr;
    }
    if (take_op("[")) {
      expr = make(Expr::Kind::kList);
      while (!take_op("]")) {
        ENGINE_ASSIGN_OR_RETURN(ExprPtr item, parse_expression());
        expr->children.push_back(std::move(item));
        if (!is_op("]")) ENGINE_RETURN_IF_ERROR(want_op(","));
      }
      return expr;
    }
    if (take_op("{")) {
      expr = make(Expr::Kind::kDict);
      while (!take_op("}")) {
        ENGINE_ASSIGN_OR_RETURN(ExprPtr key, parse_expression());
        ENGINE_RETURN_IF_ERROR(want_op(":"));
        ENGINE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
        expr->children.push_back(std::move(key));
        expr->children.push_back(std::move(value));
        if (!is_op("}")) ENGINE_RETURN_IF_ERROR(want_op(","));
      }
      return expr;
    }
    return fail("expected an expression");
  }

  StatusOrExpr parse_postfix(ExprPtr expr) {
    while (true) {
      if (take_op(".")) {
        ExprPtr outer = make(Expr::Kind::kAttribute);
        if (here().kind == Kind::kInteger) {
          outer->kind = Expr::Kind::kIndex;
          ENGINE_ASSIGN_OR_RETURN(ExprPtr index, parse_primary());
          outer->children.push_back(std::move(expr));
          outer->children.push_back(std::move(index));
        } else {
          ENGINE_ASSIGN_OR_RETURN(outer->name, want_name());
          outer->children.push_back(std::move(expr));
        }
        expr = std::move(outer);
      } else if (take_op("[")) {
        ENGINE_ASSIGN_OR_RETURN(expr, parse_subscript(std::move(expr)));
      } else if (is_op("(")) {
        ExprPtr call = make(Expr::Kind::kCall);
        call->children.push_back(std::move(expr));
        ENGINE_RETURN_IF_ERROR(parse_arguments(&call->args));
        expr = std::move(call);
      } else {
        return expr;
      }
    }
  }

  StatusOrExpr parse_subscript(ExprPtr object) {
    ExprPtr expr = make(Expr::Kind::kIndex);
    expr->children.push_back(std::move(object));
    expr->children.push_back(nullptr);
    if (!is_op(":")) {
      ENGINE_ASSIGN_OR_RETURN(expr->children[1], parse_expression());
    }
    if (is_op(":")) {
      expr->kind = Expr::Kind::kSlice;
      expr->children.resize(4);
      for (size_t i = 2; i < 4 && take_op(":"); ++i) {
        if (is_op(":") || is_op("]")) continue;
        ENGINE_ASSIGN_OR_RETURN(expr->children[i], parse_expression());
      }
    }
    ENGINE_RETURN_IF_ERROR(want_op("]"));
    return expr;
  }

  absl::Status parse_arguments(Arguments* args) {
    ENGINE_RETURN_IF_ERROR(want_op("("));
    while (!take_op(")")) {
      if (here().kind == Kind::kName && next().kind == Kind::kOperator && next().text == "=") {
        std::string name = here().text;
        advance();
        advance();
        ENGINE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
        args->named.emplace_back(std::move(name), std::move(value));
      } else {
        if (is_op("*") || is_op("**")) return fail("unpacked arguments are not supported");
        ENGINE_ASSIGN_OR_RETURN(ExprPtr value, parse_expression());
        args->positional.push_back(std::move(value));
      }
      if (!is_op(")")) ENGINE_RETURN_IF_ERROR(want_op(","));
    }
    return absl::OkStatus();
  }

  // `| filter(...)` and `is test ...`, any number of them; `bare`: the first filter has no bar before it.
  StatusOrExpr parse_filters(ExprPtr expr, bool bare) {
    while (true) {
      if (bare || take_op("|")) {
        bare = false;
        ExprPtr filter = make(Expr::Kind::kFilter);
        ENGINE_ASSIGN_OR_RETURN(filter->name, want_name());
        if (is_op("(")) ENGINE_RETURN_IF_ERROR(parse_arguments(&filter->args));
        filter->children.push_back(std::move(expr));
        expr = std::move(filter);
      } else if (expr != nullptr && take_name("is")) {
        ExprPtr test = make(Expr::Kind::kTest);
        test->negated = take_name("not");
        ENGINE_ASSIGN_OR_RETURN(test->name, want_name());
        if (is_op("(")) {
          ENGINE_RETURN_IF_ERROR(parse_arguments(&test->args));
        } else if (test_has_argument()) {
          ENGINE_ASSIGN_OR_RETURN(ExprPtr argument, parse_primary());
          ENGINE_ASSIGN_OR_RETURN(argument, parse_postfix(std::move(argument)));
          test->args.positional.push_back(std::move(argument));
        }
        test->children.push_back(std::move(expr));
        expr = std::move(test);
      } else {
        return expr;
      }
    }
  }

  bool test_has_argument() const {
    if (here().kind == Kind::kString || here().kind == Kind::kInteger ||
        here().kind == Kind::kReal) {
      return true;
    }
    if (is_op("[") || is_op("{")) return true;
    if (here().kind != Kind::kName) return false;
    for (std::string_view word : {"else", "or", "and", "if", "is", "in", "not"}) {
      if (here().text == word) return false;
    }
    return true;
  }

 private:
  static ExprPtr make(Expr::Kind kind, std::string name = "") {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->name = std::move(name);
    return expr;
  }

  static ExprPtr binary(std::string op, ExprPtr left, ExprPtr right) {
    ExprPtr expr = make(Expr::Kind::kBinary, std::move(op));
    expr->children.push_back(std::move(left));
    expr->children.push_back(std::move(right));
    return expr;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;

 protected:
  int depth_ = 0;
};

}  // namespace engine::jinja

#endif  // ENGINE_LIB_TEXT_JINJA_PARSE_INL_H_
