// Statements of chat templates, by recursive descent.
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/text/jinja_parse-inl.h"

namespace engine::jinja {

namespace {

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  absl::StatusOr<Block> run() {
    ENGINE_ASSIGN_OR_RETURN(Block block, parse_block({}));
    if (here().kind != Kind::kEnd) return fail("unexpected end of a statement");
    return block;
  }

 private:
  // Statements up to one that begins with a word of `ends`, which is left standing after "{%".
  absl::StatusOr<Block> parse_block(std::initializer_list<std::string_view> ends) {
    const Level level(&depth_);
    if (depth_ > kMaxDepth) return fail("statements are nested too deeply");
    Block block;
    while (here().kind != Kind::kEnd) {
      if (here().kind == Kind::kText) {
        Node node;
        node.kind = Node::Kind::kText;
        node.text = here().text;
        block.push_back(std::move(node));
        advance();
      } else if (here().kind == Kind::kOutput) {
        advance();
        Node node;
        node.kind = Node::Kind::kOutput;
        ENGINE_ASSIGN_OR_RETURN(node.expr, parse_tuple());
        ENGINE_RETURN_IF_ERROR(want(Kind::kOutputEnd, "'}}'"));
        block.push_back(std::move(node));
      } else {
        ENGINE_RETURN_IF_ERROR(want(Kind::kStatement, "'{%'"));
        for (std::string_view end : ends) {
          if (is_name(end)) return block;
        }
        Node node;
        ENGINE_RETURN_IF_ERROR(parse_statement(&node));
        block.push_back(std::move(node));
      }
    }
    if (ends.size() > 0) return fail(absl::StrCat("'", *(ends.end() - 1), "' is missing"));
    return block;
  }

  absl::Status end_statement(std::string_view word) {
    if (!take_name(word)) return fail(absl::StrCat("expected '", word, "'"));
    return want(Kind::kStatementEnd, "'%}'");
  }

  absl::Status parse_statement(Node* node) {
    ENGINE_ASSIGN_OR_RETURN(const std::string word, want_name());
    if (word == "if") return parse_if(node);
    if (word == "for") return parse_for(node);
    if (word == "set") return parse_set(node);
    if (word == "macro") return parse_macro(node);
    if (word == "filter") {
      node->kind = Node::Kind::kFilter;
      ENGINE_ASSIGN_OR_RETURN(node->expr, parse_filters(nullptr, true));
      ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
      ENGINE_ASSIGN_OR_RETURN(node->body, parse_block({"endfilter"}));
      return end_statement("endfilter");
    }
    if (word == "generation") {
      node->kind = Node::Kind::kBlock;
      ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
      ENGINE_ASSIGN_OR_RETURN(node->body, parse_block({"endgeneration"}));
      return end_statement("endgeneration");
    }
    if (word == "break" || word == "continue") {
      node->kind = word == "break" ? Node::Kind::kBreak : Node::Kind::kContinue;
      return want(Kind::kStatementEnd, "'%}'");
    }
    return fail(absl::StrCat("statement '", word, "' is not supported"));
  }

  absl::Status parse_if(Node* node) {
    node->kind = Node::Kind::kIf;
    ENGINE_ASSIGN_OR_RETURN(ExprPtr condition, parse_tuple());
    ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
    while (true) {
      ENGINE_ASSIGN_OR_RETURN(Block body, parse_block({"elif", "else", "endif"}));
      node->branches.emplace_back(std::move(condition), std::move(body));
      const bool last = node->branches.back().first == nullptr;
      if (!last && take_name("elif")) {
        ENGINE_ASSIGN_OR_RETURN(condition, parse_tuple());
      } else if (!last && take_name("else")) {
        condition = nullptr;
      } else {
        return end_statement("endif");
      }
      ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
    }
  }

  absl::Status parse_targets(Node* node) {
    const bool parenthesis = take_op("(");
    do {
      ENGINE_ASSIGN_OR_RETURN(std::string name, want_name());
      node->targets.push_back(std::move(name));
    } while (take_op(","));
    return parenthesis ? want_op(")") : absl::OkStatus();
  }

  absl::Status parse_for(Node* node) {
    node->kind = Node::Kind::kFor;
    ENGINE_RETURN_IF_ERROR(parse_targets(node));
    if (!take_name("in")) return fail("expected 'in'");
    // Without a condition: its "if" is the loop's own.
    ENGINE_ASSIGN_OR_RETURN(node->expr, parse_or());
    if (is_op(",")) return fail("a loop over a bare tuple is not supported");
    if (take_name("if")) {
      ENGINE_ASSIGN_OR_RETURN(node->condition, parse_expression());
    }
    if (is_name("recursive")) return fail("recursive loops are not supported");
    ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
    ENGINE_ASSIGN_OR_RETURN(node->body, parse_block({"else", "endfor"}));
    if (take_name("else")) {
      ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
      ENGINE_ASSIGN_OR_RETURN(node->otherwise, parse_block({"endfor"}));
    }
    return end_statement("endfor");
  }

  absl::Status parse_set(Node* node) {
    node->kind = Node::Kind::kSet;
    ENGINE_RETURN_IF_ERROR(parse_targets(node));
    if (node->targets.size() == 1 && take_op(".")) {
      ENGINE_ASSIGN_OR_RETURN(const std::string attribute, want_name());
      node->targets[0] += "." + attribute;
    }
    if (take_op("=")) {
      ENGINE_ASSIGN_OR_RETURN(node->expr, parse_tuple());
      return want(Kind::kStatementEnd, "'%}'");
    }
    if (node->targets.size() != 1) return fail("expected '='");
    node->kind = Node::Kind::kSetBlock;
    if (is_op("|")) {
      ENGINE_ASSIGN_OR_RETURN(node->expr, parse_filters(nullptr, false));
    }
    ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
    ENGINE_ASSIGN_OR_RETURN(node->body, parse_block({"endset"}));
    return end_statement("endset");
  }

  absl::Status parse_macro(Node* node) {
    node->kind = Node::Kind::kMacro;
    node->macro = std::make_unique<MacroNode>();
    ENGINE_ASSIGN_OR_RETURN(node->macro->name, want_name());
    ENGINE_RETURN_IF_ERROR(want_op("("));
    while (!take_op(")")) {
      ENGINE_ASSIGN_OR_RETURN(std::string name, want_name());
      ExprPtr value;
      if (take_op("=")) {
        ENGINE_ASSIGN_OR_RETURN(value, parse_expression());
      }
      node->macro->parameters.emplace_back(std::move(name), std::move(value));
      if (!is_op(")")) ENGINE_RETURN_IF_ERROR(want_op(","));
    }
    ENGINE_RETURN_IF_ERROR(want(Kind::kStatementEnd, "'%}'"));
    ENGINE_ASSIGN_OR_RETURN(Block body, parse_block({"endmacro"}));
    node->macro->body = std::make_unique<Block>(std::move(body));
    return end_statement("endmacro");
  }
};

}  // namespace

absl::StatusOr<Block> parse(std::string_view source) {
  ENGINE_ASSIGN_OR_RETURN(std::vector<Token> tokens, lex(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace engine::jinja
