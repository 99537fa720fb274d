#include "src/base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

namespace trainyard {
namespace {

/// Returns the letters of the text in lower case; its bytes if it is not UTF-8.
std::u32string letters_of(std::string_view text) {
  const std::string lowered = lower(text);
  std::string_view rest = lowered;
  std::u32string letters;
  if (!is_utf8(rest)) {
    for (const char c : rest) letters += static_cast<unsigned char>(c);
    return letters;
  }
  while (!rest.empty()) letters += take_code_point(rest);
  return letters;
}

/// Returns how many letters must be inserted, removed, replaced or exchanged with their neighbor to
/// turn `a` into `b`.
size_t edit_distance(std::u32string_view a, std::u32string_view b) {
  std::vector<size_t> before(b.size() + 1), row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    next[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      next[j] =
          std::min({row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) next[j] = std::min(next[j], before[j - 2] + 1);
    }
    std::swap(before, row);
    std::swap(row, next);
  }
  return row[b.size()];
}

// Words of other tools, each with its name in this project.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kOtherWords = {{
    {"mse", "mean_squared_error"},
    {"l2", "mean_squared_error"},
    {"mae", "mean_absolute_error"},
    {"l1", "mean_absolute_error"},
    {"smooth_l1", "huber"},
    {"cross_entropy", "softmax_cross_entropy"},
    {"crossentropy", "softmax_cross_entropy"},
    {"categorical_crossentropy", "softmax_cross_entropy"},
    {"sparse_categorical_crossentropy", "softmax_cross_entropy"},
    {"nll", "softmax_cross_entropy"},
    {"bce", "binary_cross_entropy"},
    {"binary_crossentropy", "binary_cross_entropy"},
    {"kl_div", "kl_divergence"},
    {"cuda", "gpu"},
    {"silu", "swish"},
}};

}  // namespace

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::optional<std::string> nearest_name(std::string_view word,
                                        std::span<const std::string> candidates) {
  if (word.size() > 64) return std::nullopt;  // bounds the work; so long a word is no typo
  const std::string lower_word = lower(word);
  for (const auto& [other, ours] : kOtherWords) {
    if (other == lower_word && std::ranges::count(candidates, ours) > 0) return std::string(ours);
  }
  const std::u32string letters = letters_of(word);
  std::optional<std::string> best;
  size_t best_distance = 2 + letters.size() / 3;
  for (const std::string& candidate : candidates) {
    const std::u32string others = letters_of(candidate);
    if (std::max(letters.size(), others.size()) >=
        std::min(letters.size(), others.size()) + best_distance) {
      continue;  // even if all letters of the shorter one are right
    }
    const size_t distance = edit_distance(letters, others);
    // More than half of the letters must be right: "who" is not a misspelt "shoe".
    if (distance < best_distance && 2 * distance < std::max(letters.size(), others.size())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string quoted_value(std::string_view value) {
  constexpr size_t kBytesMax = 64;
  std::string out = "'";
  for (const char c : value.substr(0, kBytesMax)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    }
  }
  if (value.size() > kBytesMax) out += "...";
  return out + "'";
}

bool is_utf8(std::string_view text) { return !find_invalid_utf8(text).has_value(); }

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* p = begin;
  const auto* const end = p + text.size();
  while (p != end) {
    const auto at = static_cast<size_t>(p - begin);
    const unsigned lead = *p++;
    if (lead < 0x80) continue;
    const int tail = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
    if (lead < 0xc2 || lead > 0xf4 || end - p < tail) return at;
    uint32_t code = lead & (0x3fu >> tail);
    for (int i = 0; i < tail; ++i, ++p) {
      if ((*p & 0xc0) != 0x80) return at;
      code = code << 6 | (*p & 0x3fu);
    }
    if (tail == 2 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) return at;
    if (tail == 3 && (code < 0x10000 || code > 0x10ffff)) return at;
  }
  return std::nullopt;
}

char32_t take_code_point(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t tail = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : lead >= 0x80 ? 1 : 0;
  char32_t code = tail == 0 ? lead : lead & (0x3fu >> tail);
  for (size_t i = 1; i <= tail; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3fu);
  }
  text.remove_prefix(tail + 1);
  return code;
}

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += {static_cast<char>(0xc0 | code >> 6), tail(0)};
  } else if (code < 0x10000) {
    text += {static_cast<char>(0xe0 | code >> 12), tail(6), tail(0)};
  } else {
    text += {static_cast<char>(0xf0 | code >> 18), tail(12), tail(6), tail(0)};
  }
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string human_bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.3g %s", value,
                kUnits[unit]);
  return text;
}

}  // namespace trainyard
