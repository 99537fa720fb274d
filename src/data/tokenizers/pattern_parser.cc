#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "src/base/text.h"
#include "src/data/tokenizers/pattern_program.h"

namespace trainyard {
namespace {

using Kind = PatternOp::Kind;
constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();
constexpr size_t kOpsMax = 20'000, kRepeatsMax = 1000;
constexpr int kGroupDepthMax = 64;

/// A part of the expression.
struct Node {
  enum class Type : uint8_t { kSet, kSequence, kChoice, kRepeat, kGroup, kAnchor } type;
  CharacterSet set = {};                          // kSet
  std::vector<std::unique_ptr<Node>> parts = {};  // of all types but kSet and kAnchor
  uint32_t low = 0, high = 0;                     // kRepeat
  enum class Mode : uint8_t { kGreedy, kLazy, kPossessive } mode = Mode::kGreedy;  // kRepeat
  Kind op = Kind::kDone;  // kGroup: kAhead, kNotAhead, kAtomic; kAnchor
  bool negated = false;   // kAnchor kBehind
};
using NodePtr = std::unique_ptr<Node>;

NodePtr make_node(Node::Type type) {
  auto node = std::make_unique<Node>();
  node->type = type;
  return node;
}

/// Returns true if the node matches at least one character.
bool takes_text(const Node& node) {
  switch (node.type) {
    case Node::Type::kSet:
      return true;
    case Node::Type::kSequence:
      return std::ranges::any_of(node.parts, [](const NodePtr& p) { return takes_text(*p); });
    case Node::Type::kChoice:
      return std::ranges::all_of(node.parts, [](const NodePtr& p) { return takes_text(*p); });
    case Node::Type::kRepeat:
      return node.low > 0 && takes_text(*node.parts[0]);
    case Node::Type::kGroup:
      return node.op == Kind::kAtomic && takes_text(*node.parts[0]);
    case Node::Type::kAnchor:
      return false;
  }
  return false;
}

/// Reads an expression. After the first error all functions return empty nodes.
class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Result<NodePtr> parse() {
    NodePtr node = read_choice();
    if (!error_ && !rest_.empty()) refuse("a closing parenthesis is not expected");
    if (error_) return make_error(ErrorCode::kInvalidArgument, "TOKENIZER_INVALID", *error_);
    return node;
  }

 private:
  void refuse(const std::string& what) {
    if (!error_) error_ = what;
    rest_ = {};
  }
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  char32_t take_character() {
    if (rest_.empty()) {
      refuse("it ends too early");
      return 0;
    }
    return take_code_point(rest_);
  }

  NodePtr read_choice() {
    NodePtr choice = make_node(Node::Type::kChoice);
    if (++depth_ > kGroupDepthMax) refuse("its groups are too deep");
    do {
      choice->parts.push_back(read_sequence());
    } while (take("|"));
    --depth_;
    return choice->parts.size() == 1 ? std::move(choice->parts[0]) : std::move(choice);
  }

  NodePtr read_sequence() {
    NodePtr sequence = make_node(Node::Type::kSequence);
    const bool case_before = ignores_case_;
    while (!rest_.empty() && rest_[0] != '|' && rest_[0] != ')') {
      NodePtr node = read_atom();
      while (node != nullptr && read_quantifier(node)) {
      }
      if (node != nullptr) sequence->parts.push_back(std::move(node));
    }
    ignores_case_ = case_before;
    return sequence;
  }

  /// Reads the number of repetitions in front of which a node is, if there is one.
  bool read_quantifier(NodePtr& node) {
    uint32_t low = 0;
    uint32_t high = kUnbounded;
    bool interval = false;
    if (take("*")) {
    } else if (take("+")) {
      low = 1;
    } else if (take("?")) {
      high = 1;
    } else if (rest_.starts_with('{')) {
      if (!read_interval(low, high)) return false;
      interval = true;
    } else {
      return false;
    }
    auto mode = Node::Mode::kGreedy;
    if (rest_.starts_with('?')) {
      if (interval && low == high) refuse("'}?' is not known");
      mode = Node::Mode::kLazy;
      take("?");
    } else if (!interval && take("+")) {
      mode = Node::Mode::kPossessive;
    }
    if (node->type == Node::Type::kAnchor) refuse("a repeated anchor is not known");
    if (high == kUnbounded && !takes_text(*node)) {
      refuse("the repetition of a part that may match nothing is not known");
    }
    NodePtr repeat = make_node(Node::Type::kRepeat);
    repeat->low = low;
    repeat->high = high;
    repeat->mode = mode;
    repeat->parts.push_back(std::move(node));
    node = std::move(repeat);
    return !error_;
  }

  /// Reads {2}, {2,} or {2,3}. Other braces are refused.
  bool read_interval(uint32_t& low, uint32_t& high) {
    take("{");
    const auto read_number = [&]() -> std::optional<uint32_t> {
      uint32_t number = 0;
      bool any = false;
      while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') {
        number = std::min<uint32_t>(number * 10 + static_cast<uint32_t>(rest_[0] - '0'), 100'000);
        rest_.remove_prefix(1);
        any = true;
      }
      return any ? std::optional(number) : std::nullopt;
    };
    const std::optional<uint32_t> first = read_number();
    const bool comma = take(",");
    const std::optional<uint32_t> second = comma ? read_number() : first;
    if (!take("}") || (!first && !second)) {
      refuse("expected {n}, {n,}, {,m} or {n,m}");
      return false;
    }
    low = first.value_or(0);
    high = second.value_or(kUnbounded);
    if (low > kRepeatsMax || (high != kUnbounded && high > kRepeatsMax) || low > high) {
      refuse("expected a number of repetitions up to " + std::to_string(kRepeatsMax));
      return false;
    }
    return true;
  }

  NodePtr read_atom() {
    if (take("(")) return read_group();
    if (take("[")) return make_set(read_set());
    if (take(".")) {
      CharacterSet set;
      set.add_range('\n', '\n');
      set.negate();
      return make_set(std::move(set));
    }
    if (take("^")) return make_anchor(Kind::kLineBegin);
    if (take("$")) return make_anchor(Kind::kLineEnd);
    if (take("\\")) return read_escape();
    if (rest_.starts_with('*') || rest_.starts_with('+') || rest_.starts_with('?')) {
      refuse("there is nothing to repeat");
      return nullptr;
    }
    const char32_t c = take_character();
    CharacterSet set;
    set.add_range(c, c);
    return make_set(std::move(set));
  }

  NodePtr make_set(CharacterSet set) {
    if (ignores_case_) set.ignore_case();
    NodePtr node = make_node(Node::Type::kSet);
    node->set = std::move(set);
    return node;
  }
  static NodePtr make_anchor(Kind op) {
    NodePtr node = make_node(Node::Type::kAnchor);
    node->op = op;
    return node;
  }

  NodePtr read_group() {
    if (!take("?")) return finish_group(std::nullopt);
    if (take(":")) return finish_group(std::nullopt);
    if (take("=")) return finish_group(Kind::kAhead);
    if (take("!")) return finish_group(Kind::kNotAhead);
    if (take(">")) return finish_group(Kind::kAtomic);
    if (take("<=")) return read_behind(false);
    if (take("<!")) return read_behind(true);
    const bool before = ignores_case_;
    const bool ignores = take("i:");
    if (ignores || take("-i:")) {
      ignores_case_ = ignores;
      NodePtr node = finish_group(std::nullopt);
      ignores_case_ = before;
      return node;
    }
    if (take("i)")) {  // until the end of the enclosing group
      ignores_case_ = true;
      return nullptr;
    }
    refuse("the group '(?" + std::string(rest_.substr(0, 1)) + "' is not known");
    return nullptr;
  }

  NodePtr finish_group(std::optional<Kind> op) {
    NodePtr inside = read_choice();
    if (!error_ && !take(")")) refuse("a closing parenthesis is missing");
    if (!op) return inside;
    NodePtr group = make_node(Node::Type::kGroup);
    group->op = *op;
    group->parts.push_back(std::move(inside));
    return group;
  }

  NodePtr read_behind(bool negated) {
    NodePtr inside = read_choice();
    if (!error_ && !take(")")) refuse("a closing parenthesis is missing");
    while (inside != nullptr && inside->type == Node::Type::kSequence &&
           inside->parts.size() == 1) {
      inside = NodePtr(std::move(inside->parts[0]));
    }
    if (error_ || inside == nullptr || inside->type != Node::Type::kSet) {
      refuse("a look at more or less than one character behind is not known");
      return nullptr;
    }
    NodePtr node = make_anchor(Kind::kBehind);
    node->negated = negated;
    node->set = std::move(inside->set);
    return node;
  }

  NodePtr read_escape() {
    if (take("A")) return make_anchor(Kind::kTextBegin);
    if (take("z")) return make_anchor(Kind::kTextEnd);
    CharacterSet set;
    add_escape(set);
    return make_set(std::move(set));
  }

  /// Adds what follows a backslash to a set. Returns the character if it is a single one.
  std::optional<char32_t> add_escape(CharacterSet& set) {
    const char32_t c = take_character();
    switch (c) {
      case 's':
      case 'S':
        set.add_kind(CharacterSet::Kind::kSpace, c == 'S');
        return std::nullopt;
      case 'w':
      case 'W':
        set.add_kind(CharacterSet::Kind::kWord, c == 'W');
        return std::nullopt;
      case 'd':
        set.add_categories(*find_categories("Nd"));
        return std::nullopt;
      case 'D':
        add_property("Nd", true, set);
        return std::nullopt;
      case 'p':
      case 'P':
        read_property(c == 'P', set);
        return std::nullopt;
      default:
        break;
    }
    const char32_t single = read_single_escape(c);
    set.add_range(single, single);
    return single;
  }

  /// Returns the character that an escape stands for; `c` is what follows the backslash.
  char32_t read_single_escape(char32_t c) {
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'f':
        return '\f';
      case 'v':
        return '\v';
      case 'a':
        return '\a';
      case 'e':
        return 0x1b;
      case 'x':
        if (take("{")) {
          const char32_t value = read_hexadecimal(1, 8);
          if (!take("}")) refuse("expected '}' after \\x{");
          return value;
        }
        return read_hexadecimal(1, 2);
      case 'u':
        return read_hexadecimal(4, 4);
      default:
        break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter) refuse(std::string("'\\") + static_cast<char>(c) + "' is not known");
    return c;
  }

  char32_t read_hexadecimal(size_t digits_min, size_t digits_max) {
    char32_t value = 0;
    size_t digits = 0;
    while (digits < digits_max && !rest_.empty()) {
      const char d = rest_[0];
      const int digit = d >= '0' && d <= '9'   ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = value << 4 | static_cast<char32_t>(digit);
      rest_.remove_prefix(1);
      ++digits;
    }
    if (digits < digits_min || value > 0x10ffff) refuse("expected the number of a character");
    return value;
  }

  void add_property(std::string_view name, bool negated, CharacterSet& set) {
    CharacterSet property;
    const std::optional<uint32_t> categories = find_categories(name);
    if (categories) {
      property.add_categories(*categories);
    } else {
      refuse("the property " + quoted_value(name) + " is not known, expected a general category");
    }
    if (negated) property.negate();
    set.add_set(std::move(property));
  }

  /// Reads {L}, {^L} or L.
  void read_property(bool negated, CharacterSet& set) {
    if (!take("{")) return refuse("expected a property in braces");
    if (take("^")) negated = !negated;
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos) return refuse("expected a property in braces");
    const std::string name(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    add_property(name, negated, set);
  }

  /// Reads a set after its opening bracket.
  CharacterSet read_set() {
    CharacterSet set;
    if (++depth_ > kGroupDepthMax) refuse("its sets are too deep");
    const bool negated = take("^");
    bool any = false;
    std::optional<CharacterSet> whole;  // what is before "&&"
    while (!error_ && !rest_.starts_with(']')) {
      if (rest_.empty()) refuse("a closing bracket is missing");
      if (take("&&")) {
        intersect(whole, std::move(set));
        set = CharacterSet();
        continue;
      }
      read_set_item(set);
      any = true;
    }
    if (!any) refuse("an empty set is not known");
    take("]");
    if (whole) {
      intersect(whole, std::move(set));
      set = *std::move(whole);
    }
    if (negated) set.negate();
    --depth_;
    return set;
  }

  static void intersect(std::optional<CharacterSet>& whole, CharacterSet set) {
    if (whole) {
      whole->intersect(std::move(set));
    } else {
      whole = CharacterSet();
      whole->add_set(std::move(set));
    }
  }

  void read_set_item(CharacterSet& set) {
    if (rest_.starts_with("[:")) return refuse("a set '[:...:]' is not known");
    if (take("[")) return set.add_set(read_set());
    CharacterSet one;
    std::optional<char32_t> first;
    if (take("\\")) {
      first = add_escape(one);
    } else {
      first = take_character();
      one.add_range(*first, *first);
    }
    const bool range = rest_.starts_with('-') && rest_.size() > 1 && rest_[1] != ']';
    if (!first || !range) return set.add_set(std::move(one));
    take("-");
    if (rest_.starts_with('[')) return refuse("a range to a set is not known");
    CharacterSet other;
    const std::optional<char32_t> last = take("\\") ? add_escape(other) : take_character();
    if (!last || *last < *first) return refuse("a range has no end, or ends before it begins");
    set.add_range(*first, *last);
  }

  std::string_view rest_;
  std::optional<std::string> error_;
  bool ignores_case_ = false;
  int depth_ = 0;
};

/// Writes the operations of nodes.
class Compiler {
 public:
  Result<PatternProgram> compile(const Node& node) {
    write(node);
    add({Kind::kDone});
    if (program_.ops.size() >= kOpsMax) {
      return make_error(ErrorCode::kInvalidArgument, "TOKENIZER_INVALID", "it is too large");
    }
    for (CharacterSet& set : program_.sets) set.finish();
    return std::move(program_);
  }

 private:
  uint32_t here() const { return static_cast<uint32_t>(program_.ops.size()); }
  uint32_t add(PatternOp op) {
    program_.ops.push_back(op);
    return here() - 1;
  }
  uint32_t add_set(const CharacterSet& set) {
    program_.sets.push_back(set);
    return static_cast<uint32_t>(program_.sets.size() - 1);
  }

  void write(const Node& node) {
    if (program_.ops.size() >= kOpsMax) return;
    switch (node.type) {
      case Node::Type::kSet:
        add({Kind::kCharacter, add_set(node.set)});
        break;
      case Node::Type::kSequence:
        for (const NodePtr& part : node.parts) write(*part);
        break;
      case Node::Type::kChoice:
        write_choice(node);
        break;
      case Node::Type::kRepeat:
        write_repeat(node);
        break;
      case Node::Type::kGroup: {
        const uint32_t group = add({node.op});
        write(*node.parts[0]);
        add({Kind::kDone});
        program_.ops[group].a = here();
        break;
      }
      case Node::Type::kAnchor:
        if (node.op == Kind::kBehind) {
          add({Kind::kBehind, add_set(node.set), 0, node.negated ? 1U : 0U});
        } else {
          add({node.op});
        }
        break;
    }
  }

  void write_choice(const Node& node) {
    std::vector<uint32_t> jumps;
    for (size_t i = 0; i < node.parts.size(); ++i) {
      const bool last = i + 1 == node.parts.size();
      const uint32_t split = last ? 0 : add({Kind::kSplit, here() + 1});
      write(*node.parts[i]);
      if (last) break;
      jumps.push_back(add({Kind::kJump}));
      program_.ops[split].b = here();
    }
    for (const uint32_t jump : jumps) program_.ops[jump].a = here();
  }

  void write_repeat(const Node& node) {
    const Node& part = *node.parts[0];
    if (part.type == Node::Type::kSet && node.mode != Node::Mode::kLazy) {
      const Kind kind = node.mode == Node::Mode::kPossessive ? Kind::kRepeatAll : Kind::kRepeat;
      add({kind, add_set(part.set), 0, node.low, node.high});
      return;
    }
    std::optional<uint32_t> group;
    if (node.mode == Node::Mode::kPossessive) group = add({Kind::kAtomic});
    for (uint32_t i = 0; i < node.low; ++i) write(part);
    if (node.high == kUnbounded) {
      const uint32_t split = add_split(node);
      write(part);
      add({Kind::kJump, split});
      end_split(split, node);
    } else {
      std::vector<uint32_t> splits;
      for (uint32_t i = node.low; i < node.high && program_.ops.size() < kOpsMax; ++i) {
        splits.push_back(add_split(node));
        write(part);
      }
      for (const uint32_t split : splits) end_split(split, node);
    }
    if (!group) return;
    add({Kind::kDone});
    program_.ops[*group].a = here();
  }
  /// Adds a choice between what follows and the end of the repetition.
  uint32_t add_split(const Node& node) {
    const uint32_t next = here() + 1;
    return node.mode == Node::Mode::kLazy ? add({Kind::kSplit, 0, next})
                                          : add({Kind::kSplit, next, 0});
  }
  void end_split(uint32_t split, const Node& node) {
    PatternOp& op = program_.ops[split];
    (node.mode == Node::Mode::kLazy ? op.a : op.b) = here();
  }

  PatternProgram program_;
};

}  // namespace

Result<PatternProgram> parse_pattern(std::string_view expression) {
  ASSIGN_OR_RETURN(const NodePtr node, Parser(expression).parse());
  return Compiler().compile(*node);
}

}  // namespace trainyard
