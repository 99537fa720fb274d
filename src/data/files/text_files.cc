#include "src/data/files/text_files.h"

#include <algorithm>
#include <array>
#include <optional>

#include "src/base/folder_files.h"
#include "src/base/text.h"
#include "src/data/files/byte_source.h"
#include "src/data/problems.h"

namespace trainyard {

bool is_text_path(std::string_view path) {
  static constexpr std::array<std::string_view, 1> kEndings = {".txt"};
  return has_ending(path, kEndings);
}

Status check_utf8(std::string_view text, const std::string& place) {
  const std::optional<size_t> bad = find_invalid_utf8(text);
  if (!bad) return {};
  return dataset_error(place,
                       "byte " + std::to_string(*bad) + " (" + quoted_value(text.substr(*bad, 1)) +
                           ") is not UTF-8; store the text as UTF-8, or use tokenizer: byte");
}

Result<std::string> read_text_file(FileTree& tree, const std::string& what, size_t bytes_max,
                                   bool bytes) {
  const std::string place = place_in_tree(what, tree.path());
  ASSIGN_OR_RETURN(std::string text, read_tree_file(tree, bytes_max, place));
  if (!bytes) {
    if (Status s = check_utf8(text, place); !s.ok()) return std::move(s).error();
  }
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

Result<bool> contains_files(const std::filesystem::path& path, const std::string& what) {
  std::error_code ec;
  if (std::filesystem::is_directory(path, ec)) return true;
  ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> source, open_file_source(path, what));
  std::array<char, 512> start{};
  const Result<size_t> n = read_full(*source, start);
  if (!n.ok()) return false;  // damaged gzip is reported where the text is read
  const std::string_view text(start.data(), *n);
  constexpr size_t kTarMagicAt = 257;
  return text.starts_with("PK\x03\x04") ||
         text.starts_with(
             "\xfd"
             "7zXZ") ||
         text.starts_with("\x28\xb5\x2f\xfd") ||
         (text.size() == start.size() && text.substr(kTarMagicAt).starts_with("ustar"));
}

}  // namespace trainyard
