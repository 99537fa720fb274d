// Parses the header of a NPY file: the text of a Python dictionary with three keys.
#include <algorithm>
#include <charconv>
#include <optional>

#include "src/base/text.h"
#include "src/data/arrays/array_file.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

constexpr size_t kRankMax = 32;  // the same limit as NumPy's
constexpr int64_t kTextBytesMax = 65536;

std::optional<int64_t> dimension_of(std::string_view digits) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || error != std::errc() || stop != digits.data() + digits.size() ||
      value < 0) {
    return std::nullopt;
  }
  return value;
}

/// Returns a description of the types with this NumPy type code, which are not supported; null for
/// others.
const char* refused_kind(char code) {
  switch (code) {
    case 'O':
      return "Python objects, which only unpickling can read";
    case 'c':
      return "complex numbers";
    case 'V':
      return "a structured type or raw bytes";
    case 'M':
      return "dates";
    case 'm':
      return "time spans";
    default:
      return nullptr;
  }
}

Result<ArrayType> parse_type(std::string_view descr, const std::string& what) {
  const auto refuse = [&](const std::string& why) {
    return dataset_error(
        what,
        "elements of type " + quoted_value(descr) + why +
            ", expected booleans, whole numbers, floats of 16 to 64 bits or text of a fixed width");
  };
  std::string_view rest = descr;
  ArrayType type;
  if (!rest.empty() && std::string_view("<>|=").find(rest[0]) != std::string_view::npos) {
    type.big_endian = rest[0] == '>';
    rest.remove_prefix(1);
  }
  const char code = rest.empty() ? '\0' : rest[0];
  if (const char* name = refused_kind(code)) return refuse(std::string(" (") + name + ")");
  const std::optional<int64_t> size = dimension_of(rest.substr(std::min<size_t>(1, rest.size())));
  if (!size) return refuse("");
  const bool power = *size == 1 || *size == 2 || *size == 4 || *size == 8;
  type.bytes = *size;
  switch (code) {
    case 'b':
      type.kind = ArrayType::Kind::kBool;
      if (*size != 1) return refuse("");
      return type;
    case 'i':
    case 'u':
      type.kind = code == 'i' ? ArrayType::Kind::kInteger : ArrayType::Kind::kUnsigned;
      if (!power) return refuse("");
      return type;
    case 'f':
      type.kind = ArrayType::Kind::kFloat;
      if (!power || *size == 1) return refuse("");
      return type;
    case 'S':
    case 'a':
    case 'U':
      type.kind = code == 'U' ? ArrayType::Kind::kUnicode : ArrayType::Kind::kBytes;
      if (*size < 1 || *size > kTextBytesMax / (code == 'U' ? 4 : 1)) {
        return refuse(" (text of " + std::to_string(*size) + " characters)");
      }
      if (code == 'U') type.bytes = 4 * *size;
      return type;
    default:
      return refuse("");
  }
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& what) : rest_(text), what_(what) {}

  Result<NpyHeader> parse() {
    NpyHeader header;
    if (!take('{')) return malformed();
    unsigned seen = 0;
    while (!take('}')) {
      const std::optional<std::string_view> key = take_string();
      if (!key || !take(':')) return malformed();
      static constexpr std::string_view kKeys[] = {"descr", "fortran_order", "shape"};
      const auto found = std::ranges::find(kKeys, *key);
      const unsigned bit = 1u << (found - std::begin(kKeys));
      if (found == std::end(kKeys) || (seen & bit) != 0) return malformed();
      seen |= bit;
      if (*key == "descr") {
        skip_blanks();
        if (rest_.starts_with('[') || rest_.starts_with('(')) {
          return dataset_error(what_,
                               "elements of a structured type, expected an array of numbers");
        }
        const std::optional<std::string_view> descr = take_string();
        if (!descr) return malformed();
        ASSIGN_OR_RETURN(header.type, parse_type(*descr, what_));
      } else if (*key == "shape") {
        std::optional<std::vector<int64_t>> dims = take_dims();
        if (!dims) return malformed();
        header.shape = Shape(*std::move(dims));
      } else if (take_word("True")) {
        header.fortran_order = true;
      } else if (!take_word("False")) {
        return malformed();
      }
      if (!take(',')) {
        if (!take('}')) return malformed();
        break;
      }
    }
    skip_blanks();
    if (seen != 7u || !rest_.empty()) return malformed();
    if (!header.shape.fits()) {
      return dataset_error(what_, "sizes " + header.shape.to_string() + " are too large");
    }
    return header;
  }

 private:
  Error malformed() const {
    return dataset_error(
        what_,
        "the NPY header is damaged, expected {'descr': ..., 'fortran_order': ..., 'shape': ...}");
  }
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\n"), rest_.size()));
  }
  bool take(char c) {
    skip_blanks();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    skip_blanks();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  /// Reads a string in single or double quotes. Refuses backslashes, which no valid header needs.
  std::optional<std::string_view> take_string() {
    const char quote = take('\'') ? '\'' : take('"') ? '"' : '\0';
    if (quote == '\0') return std::nullopt;
    const size_t end = rest_.find(quote);
    if (end == rest_.npos || rest_.substr(0, end).find('\\') != rest_.npos) return std::nullopt;
    const std::string_view text = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return text;
  }
  /// Reads a tuple of sizes: "(3, 4)", "(3,)", "()". Python 2 wrote numbers as "3L".
  std::optional<std::vector<int64_t>> take_dims() {
    std::vector<int64_t> dims;
    if (!take('(')) return std::nullopt;
    while (!take(')')) {
      skip_blanks();
      const size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
      const std::optional<int64_t> size = dimension_of(rest_.substr(0, digits));
      if (!size || dims.size() == kRankMax) return std::nullopt;
      dims.push_back(*size);
      rest_.remove_prefix(digits);
      (void)take_word("L");
      if (!take(',')) {
        if (!take(')')) return std::nullopt;
        break;
      }
    }
    return dims;
  }

  std::string_view rest_;
  const std::string& what_;
};

}  // namespace

Result<NpyHeader> parse_npy_header(std::string_view text, const std::string& what) {
  return Parser(text, what).parse();
}

}  // namespace trainyard
