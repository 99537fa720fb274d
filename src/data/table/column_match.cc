#include "src/data/table/column_match.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/problems.h"

namespace trainyard {
namespace {

/// The names on both sides that are equal when folded.
struct Alike {
  size_t name = kNoColumn, known = kNoColumn;
  int names = 0, knowns = 0;
};

/// Matches the names that have no match yet with the known columns that are not `taken`.
void match_folded(std::span<const std::string> names, std::span<const std::string> known,
                  const std::vector<bool>& taken, std::vector<size_t>& matches) {
  std::unordered_map<std::string, Alike> alike;
  for (size_t i = 0; i < known.size(); ++i) {
    if (taken[i]) continue;
    Alike& a = alike[folded_name(known[i])];
    a.known = i;
    ++a.knowns;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (matches[i] != kNoColumn) continue;
    const auto found = alike.find(folded_name(names[i]));
    if (found == alike.end()) continue;
    found->second.name = i;
    ++found->second.names;
  }
  for (const auto& [text, a] : alike) {
    if (a.names == 1 && a.knowns == 1) matches[a.name] = a.known;
  }
}

}  // namespace

std::string folded_name(std::string_view name) {
  const size_t begin = name.find_first_not_of(" \t");
  if (begin == name.npos) return {};
  return nfc(lower(name.substr(begin, name.find_last_not_of(" \t") - begin + 1)));
}

std::vector<size_t> match_columns(std::span<const std::string> names,
                                  std::span<const std::string> known) {
  std::unordered_map<std::string_view, size_t> exact;
  for (size_t i = 0; i < known.size(); ++i) exact.emplace(known[i], i);
  std::vector<size_t> matches(names.size(), kNoColumn);
  std::vector<bool> taken(known.size(), false);
  bool all = true;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto found = exact.find(names[i]);
    if (found == exact.end()) {
      all = false;
      continue;
    }
    matches[i] = found->second;
    taken[found->second] = true;
  }
  if (!all) match_folded(names, known, taken, matches);
  return matches;
}

std::string list_columns(std::span<const std::string> names) {
  constexpr size_t kListedMax = 16;
  const size_t listed = names.size() <= kListedMax ? names.size() : kListedMax;
  std::string text;
  for (size_t i = 0; i < listed; ++i) {
    const bool last = i > 0 && i + 1 == names.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + quoted_value(names[i]);
  }
  if (listed < names.size()) text += " and " + std::to_string(names.size() - listed) + " more";
  return text;
}

Error missing_columns(const std::string& what, const std::vector<std::string>& missing,
                      std::string_view needed, const std::vector<std::string>& others) {
  std::string text = (missing.size() == 1 ? "the column " : "the columns ") +
                     list_columns(missing) + ", " + std::string(needed) +
                     (missing.size() == 1 ? ", is missing" : ", are missing");
  constexpr size_t kSuggestedMax = 4;
  size_t suggested = 0;
  for (const std::string& name : missing) {
    // Nearly every name is similar to a shorter one.
    const std::optional<std::string> near =
        name.size() < 3 || suggested == kSuggestedMax ? std::nullopt : nearest_name(name, others);
    if (!near) continue;
    ++suggested;
    text += "; is " + quoted_value(*near) + " meant to be " + quoted_value(name) + "?";
  }
  if (suggested == 0 && !others.empty()) {
    text += "; the rows have " + list_columns(others) + " instead";
  }
  return dataset_error(what, std::move(text));
}

}  // namespace trainyard
