#include "src/data/tokenizers/token_model.h"

#include "src/base/text.h"

namespace trainyard {

Status TokenNames::add(std::string name, int64_t id, const std::string& field) {
  if (id < 0 || id >= kTokensMax) {
    return tokenizer_error(field, "the id " + std::to_string(id) + " of " + quoted_value(name) +
                                      " is not from 0 to " + std::to_string(kTokensMax - 1));
  }
  const auto at = static_cast<size_t>(id);
  if (at >= names_.size()) {
    names_.resize(at + 1);
    known_.resize(at + 1);
  }
  if (known_[at]) {
    return tokenizer_error(field, "the id " + std::to_string(id) + " belongs to " +
                                      quoted_value(names_[at]) + " and to " + quoted_value(name));
  }
  if (!ids_.emplace(name, static_cast<int32_t>(id)).second) {
    return tokenizer_error(field, "the token " + quoted_value(name) + " appears twice");
  }
  names_[at] = std::move(name);
  known_[at] = true;
  return {};
}

int32_t TokenNames::find(std::string_view name) const {
  const auto it = ids_.find(name);
  return it == ids_.end() ? -1 : it->second;
}

std::string_view TokenNames::name(int32_t id) const {
  return contains(id) ? std::string_view(names_[static_cast<size_t>(id)]) : std::string_view();
}

bool TokenNames::contains(int32_t id) const {
  return id >= 0 && id < size() && known_[static_cast<size_t>(id)];
}

}  // namespace trainyard
