#include "src/data/tokenizers/pattern.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "src/base/text.h"
#include "src/data/tokenizers/pattern_program.h"
#include "src/data/tokenizers/token_model.h"

namespace trainyard {
namespace {

constexpr size_t kExpressionBytesMax = 16384;
// Each alternative that is tried is a step. A known tokenizer's pattern takes a few per character.
constexpr int64_t kStepsPerByte = 1000, kStepsMin = 10'000'000;
constexpr size_t kAlternativesMax = size_t{1} << 20;

class Matcher {
 public:
  Matcher(const PatternProgram& program, std::string_view text)
      : program_(program),
        text_(text),
        steps_left_(kStepsMin + kStepsPerByte * static_cast<int64_t>(text.size())) {}

  /// Returns the end of the match that begins at `at`; nullopt if there is none.
  std::optional<size_t> match(size_t at) { return run(0, at); }
  bool gave_up() const { return steps_left_ <= 0; }
  size_t next_of(size_t at) const {
    ++at;
    while (at < text_.size() && (static_cast<uint8_t>(text_[at]) & 0xc0) == 0x80) ++at;
    return at;
  }

 private:
  struct Alternative {
    uint32_t op;
    size_t at;
    size_t low;  // the characters from here to `at` may be given back one by one
  };

  /// Reads the character at `at`, which is not the end, and sets `next` to its end.
  char32_t read(size_t at, size_t& next) const {
    const auto first = static_cast<uint8_t>(text_[at]);
    if (first < 0x80) {
      next = at + 1;
      return first;
    }
    std::string_view rest = text_.substr(at);
    const char32_t c = take_code_point(rest);
    next = text_.size() - rest.size();
    return c;
  }
  size_t before(size_t at) const {
    --at;
    while (at > 0 && (static_cast<uint8_t>(text_[at]) & 0xc0) == 0x80) --at;
    return at;
  }

  /// Goes back to the last alternative that is left.
  bool go_back(size_t base, uint32_t& op, size_t& at) {
    if (alternatives_.size() == base || --steps_left_ <= 0) {
      alternatives_.resize(base);
      return false;
    }
    Alternative& last = alternatives_.back();
    op = last.op;
    if (last.at > last.low) {
      last.at = before(last.at);
      at = last.at;
      if (last.at == last.low) alternatives_.pop_back();
    } else {
      at = last.at;
      alternatives_.pop_back();
    }
    return true;
  }
  void keep(Alternative alternative) {
    if (alternatives_.size() >= kAlternativesMax) steps_left_ = 0;
    if (steps_left_ > 0) alternatives_.push_back(alternative);
  }

  /// Matches characters of a set; true if there are enough of them.
  bool repeat(const PatternOp& op, uint32_t next_op, size_t& at) {
    const CharacterSet& set = program_.sets[op.a];
    uint32_t count = 0;
    size_t low = at;
    while (count < op.high && at < text_.size()) {
      size_t next = at;
      if (!set.contains(read(at, next))) break;
      at = next;
      if (++count == op.low) low = at;
    }
    if (count < op.low) return false;
    if (op.kind == PatternOp::Kind::kRepeat && at > low) keep({next_op, at, low});
    return true;
  }

  bool is_behind(const PatternOp& op, size_t at) const {
    if (at == 0) return op.low == 1;
    size_t next = 0;
    const bool found = program_.sets[op.a].contains(read(before(at), next));
    return found != (op.low == 1);
  }

  /// Does one operation that is not a match of others; false: it fails.
  bool step(const PatternOp& op, uint32_t& pc, size_t& at) {
    switch (op.kind) {
      case PatternOp::Kind::kCharacter: {
        size_t next = at;
        if (at >= text_.size() || !program_.sets[op.a].contains(read(at, next))) return false;
        at = next;
        break;
      }
      case PatternOp::Kind::kRepeat:
      case PatternOp::Kind::kRepeatAll:
        if (!repeat(op, pc + 1, at)) return false;
        break;
      case PatternOp::Kind::kSplit:
        keep({op.b, at, at});
        pc = op.a;
        return true;
      case PatternOp::Kind::kJump:
        pc = op.a;
        return true;
      case PatternOp::Kind::kBehind:
        if (!is_behind(op, at)) return false;
        break;
      case PatternOp::Kind::kLineBegin:
        if (at > 0 && text_[at - 1] != '\n') return false;
        break;
      case PatternOp::Kind::kLineEnd:
        if (at < text_.size() && text_[at] != '\n') return false;
        break;
      case PatternOp::Kind::kTextBegin:
        if (at > 0) return false;
        break;
      case PatternOp::Kind::kTextEnd:
        if (at < text_.size()) return false;
        break;
      case PatternOp::Kind::kAhead:
      case PatternOp::Kind::kNotAhead:
      case PatternOp::Kind::kAtomic: {
        const std::optional<size_t> end = run(pc + 1, at);
        if (end.has_value() == (op.kind == PatternOp::Kind::kNotAhead)) return false;
        if (op.kind == PatternOp::Kind::kAtomic) at = *end;
        pc = op.a;
        return true;
      }
      case PatternOp::Kind::kDone:
        return true;
    }
    ++pc;
    return true;
  }

  std::optional<size_t> run(uint32_t pc, size_t at) {
    const size_t base = alternatives_.size();
    while (!gave_up()) {
      const PatternOp& op = program_.ops[pc];
      if (op.kind == PatternOp::Kind::kDone) {
        alternatives_.resize(base);
        return at;
      }
      if (!step(op, pc, at) && !go_back(base, pc, at)) return std::nullopt;
    }
    alternatives_.resize(base);
    return std::nullopt;
  }

  const PatternProgram& program_;
  std::string_view text_;
  int64_t steps_left_;
  std::vector<Alternative> alternatives_;
};

}  // namespace

Result<Pattern> Pattern::compile(std::string_view expression, const std::string& field) {
  const auto refuse = [&](const std::string& why) {
    return tokenizer_error(field, "the pattern " + quoted_value(expression) + ": " + why);
  };
  if (expression.size() > kExpressionBytesMax) {
    return refuse("it is longer than " + std::to_string(kExpressionBytesMax) + " bytes");
  }
  if (!is_utf8(expression)) return refuse("it is not UTF-8");
  Result<PatternProgram> program = parse_pattern(expression);
  if (!program.ok()) return refuse(program.error().message);
  Pattern result;
  result.program_ = std::make_shared<const PatternProgram>(*std::move(program));
  return result;
}

Pattern Pattern::literal(std::string_view text) {
  Pattern result;
  result.literal_ = text;
  return result;
}

void Pattern::visit_matches(std::string_view text,
                            const std::function<void(size_t, size_t)>& visit) const {
  if (program_ == nullptr) {
    if (literal_.empty()) return;
    for (size_t at = 0; (at = text.find(literal_, at)) != std::string_view::npos;) {
      visit(at, at + literal_.size());
      at += literal_.size();
    }
    return;
  }
  Matcher matcher(*program_, text);
  bool matched = false;  // whether the last match ended at `at`
  for (size_t at = 0; at <= text.size();) {
    const std::optional<size_t> end = matcher.match(at);
    if (matcher.gave_up()) return;
    if (end && (*end > at || !matched)) visit(at, *end);
    matched = end && *end > at;
    at = matched ? *end : matcher.next_of(at);
  }
}

}  // namespace trainyard
