#include "src/data/tokenizers/charsmap.h"

#include "src/base/text.h"
#include "src/data/tokenizers/token_model.h"

namespace trainyard {
namespace {

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

// The parts of a unit of the trie.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffffU; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ffU; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200U) >> 6); }

}  // namespace

Result<Charsmap> Charsmap::read(std::string_view bytes, const std::string& field) {
  Charsmap map;
  if (bytes.empty()) return map;
  const auto broken = [&](const char* what) { return tokenizer_error(field, what); };
  if (bytes.size() < 4) return broken("is cut off");
  const size_t trie_bytes = read_u32(bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes.size() - 4) {
    return broken("the size of its trie does not fit");
  }
  map.units_.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) map.units_.push_back(read_u32(bytes, at));
  map.replacements_ = bytes.substr(4 + trie_bytes);
  if (map.replacements_.empty() || map.replacements_.back() != '\0') {
    return broken("its replacements do not end with a zero byte");
  }
  // A replacement that is cut within a character would make the text something else than UTF-8.
  if (!is_utf8(map.replacements_)) return broken("its replacements are not UTF-8");
  return map;
}

template <typename Visit>
void Charsmap::visit_rules(std::string_view text, Visit visit) const {
  if (units_.empty()) return;
  size_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte == 0) return;
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (node >= units_.size()) return;
    if (has_leaf(unit) && !visit(i + 1, value_of(units_[node]))) return;
  }
}

Charsmap::Match Charsmap::match(size_t bytes, uint32_t place) const {
  if (place >= replacements_.size()) return {bytes, {}};
  // A place within a character begins with the next one.
  while (place < replacements_.size() &&
         (static_cast<uint8_t>(replacements_[place]) & 0xc0) == 0x80)
    ++place;
  return {bytes, std::string_view(replacements_.data() + place)};
}

std::optional<Charsmap::Match> Charsmap::find_shortest(std::string_view text) const {
  std::optional<Match> found;
  visit_rules(text, [&](size_t bytes, uint32_t place) {
    found = match(bytes, place);
    return false;
  });
  return found;
}

std::optional<Charsmap::Match> Charsmap::find_longest(std::string_view text) const {
  std::optional<Match> found;
  visit_rules(text, [&](size_t bytes, uint32_t place) {
    found = match(bytes, place);
    return true;
  });
  return found;
}

}  // namespace trainyard
