#include "server/store/dataset_ref.h"

#include <algorithm>
#include <charconv>

namespace trainyard::server {

StoredName split_stored_name(const std::string& project, const std::string& name) {
  constexpr std::string_view kPrefix = "projects/";
  if (!name.starts_with(kPrefix)) return {project, name};
  const size_t end = name.find('/', kPrefix.size());
  return {name.substr(kPrefix.size(), end - kPrefix.size()), name.substr(name.rfind('/') + 1)};
}

std::optional<DatasetRef> parse_dataset_ref(std::string_view text) {
  constexpr size_t kDigitsMax = 9;
  const size_t at = text.find('@');
  DatasetRef ref{std::string(text.substr(0, at))};
  if (at == text.npos) return ref;
  const std::string_view digits = text.substr(at + 1);
  const bool number = !digits.empty() && digits.size() <= kDigitsMax && digits.front() != '0' &&
                      std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!number) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), ref.version);
  return ref;
}

}  // namespace trainyard::server
