// The syntax tree of a chat template.
#ifndef ENGINE_LIB_TEXT_JINJA_AST_H_
#define ENGINE_LIB_TEXT_JINJA_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/text/jinja_value.h"

namespace engine::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Expr {
  enum class Kind {
    kLiteral,    // value
    kName,       // name
    kList,       // children
    kTuple,      // children
    kDict,       // children: key, value, key, value, ...
    kUnary,      // name: - + not; children[0]
    kBinary,     // name: + - * / // % ** ~ and or == != < <= > >= in "not in"; children[0], [1]
    kCondition,  // children: condition, then, else (may be null)
    kAttribute,  // children[0] . name
    kIndex,      // children[0] [ children[1] ]
    kSlice,   // children[0] [ children[1] : children[2] : children[3] ], the last three may be null
    kCall,    // children[0] ( args )
    kFilter,  // children[0] | name ( args ); children[0] null inside a filter block
    kTest,    // children[0] is name ( args )
  };
  Kind kind;
  std::string name;
  Value value;
  std::vector<ExprPtr> children;
  Arguments args;
  bool negated = false;  // kTest: is not
};

struct Node;
using Block = std::vector<Node>;

struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  // with defaults, or null
  std::unique_ptr<Block> body;
};

struct Node {
  enum class Kind {
    kText,      // text
    kOutput,    // expr
    kIf,        // branches
    kFor,       // targets in expr if condition: body, else otherwise
    kSet,       // targets = expr
    kSetBlock,  // targets[0] = body, filtered by expr if there is one
    kMacro,     // macro
    kFilter,    // body filtered by expr
    kBlock,     // body as it is
    kBreak,
    kContinue,
  };
  Kind kind;
  std::string text;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<std::string> targets;                 // names; for kSet also one "name.attribute"
  std::vector<std::pair<ExprPtr, Block>> branches;  // the condition of else is null
  Block body;
  Block otherwise;
  std::unique_ptr<MacroNode> macro;
};

// Errors say what is not supported or where the template is malformed.
absl::StatusOr<Block> parse(std::string_view source);

}  // namespace engine::jinja

#endif  // ENGINE_LIB_TEXT_JINJA_AST_H_
