#include "src/models/naming/naming.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <map>

namespace trainyard {

namespace {

constexpr size_t kDigitsMax = 9;

using Places = std::map<char, std::string_view>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// Returns how much of the beginning of `text` the placeholder stands for; 0 if it does not fit.
size_t place_length(char place, std::string_view text) {
  const auto fits = [place](char c) {
    return place == 'p' ? is_letter(c) || c == '_' : is_digit(c);
  };
  const auto length = static_cast<size_t>(std::ranges::find_if_not(text, fits) - text.begin());
  return place != 'p' && length > kDigitsMax ? 0 : length;
}

/// Removes a placeholder from the beginning of `pattern` and returns its text: "i-1" for "{i-1}".
std::string_view take_place(std::string_view& pattern) {
  const size_t close = pattern.find('}');
  const std::string_view place = pattern.substr(1, close - 1);
  pattern.remove_prefix(close + 1);
  return place;
}

/// Returns whether the pattern fits the whole name; `places` gets the texts of its placeholders.
bool fits_pattern(std::string_view pattern, std::string_view name, Places& places) {
  while (!pattern.empty()) {
    if (pattern[0] != '{') {
      if (name.empty() || name[0] != pattern[0]) return false;
      pattern.remove_prefix(1);
      name.remove_prefix(1);
      continue;
    }
    const char place = take_place(pattern)[0];
    const size_t length = place_length(place, name);
    if (length == 0) return false;
    places[place] = name.substr(0, length);
    name.remove_prefix(length);
  }
  return name.empty();
}

std::string number_before(std::string_view digits) {
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return std::to_string(number - 1);
}

std::string fill(std::string_view pattern, const Places& places) {
  std::string name;
  while (!pattern.empty()) {
    const size_t open = std::min(pattern.find('{'), pattern.size());
    name += pattern.substr(0, open);
    pattern.remove_prefix(open);
    if (pattern.empty()) break;
    const std::string_view place = take_place(pattern);
    const std::string_view value = places.at(place[0]);
    name += place.ends_with("-1") ? number_before(value) : std::string(value);
  }
  return name;
}

}  // namespace

const std::vector<NamingScheme>& naming_schemes() {
  static const std::vector<NamingScheme> schemes = [] {
    std::vector<NamingScheme> all = image_schemes();
    std::ranges::move(text_schemes(), std::back_inserter(all));
    all.push_back(
        {.title = "a PyTorch module", .presets = "", .marks = {}, .joins_differently = true});
    return all;
  }();
  return schemes;
}

std::vector<std::string> names_by_row(const NameRow& row, std::string_view ours) {
  Places places;
  if (!fits_pattern(row.ours, ours, places)) return {};
  std::vector<std::string> names;
  for (const std::string_view pattern : row.theirs) names.push_back(fill(pattern, places));
  return names;
}

std::optional<LibraryNames> library_names(const NamingScheme& scheme, std::string_view ours) {
  for (const NameRow& row : scheme.rows) {
    LibraryNames found{names_by_row(row, ours), row.arrangement};
    if (found.names.empty()) continue;
    for (std::string& name : found.names) {
      const bool bare = scheme.prefixes.empty() ||
                        std::ranges::any_of(scheme.unprefixed, [&](std::string_view begin) {
                          return name.starts_with(begin);
                        });
      if (!bare) name.insert(0, scheme.prefixes.front());
    }
    return found;
  }
  return std::nullopt;
}

bool has_mark(const NamingScheme& scheme, std::string_view name) {
  const auto fits = [&](std::string_view rest) {
    return std::ranges::any_of(scheme.marks, [&](std::string_view mark) {
      Places places;
      return fits_pattern(mark, rest, places);
    });
  };
  return fits(name) || std::ranges::any_of(scheme.prefixes, [&](std::string_view prefix) {
           return name.starts_with(prefix) && fits(name.substr(prefix.size()));
         });
}

std::string unjoined_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      plain += static_cast<char>(c - 'A' + 'a');
    } else {
      plain += is_letter(c) || is_digit(c) ? c : '_';
    }
  }
  return plain;
}

}  // namespace trainyard
