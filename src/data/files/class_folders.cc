#include "src/data/files/class_folders.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "src/base/text.h"
#include "src/base/unicode.h"
#include "src/data/files/file_tree.h"
#include "src/data/limits.h"
#include "src/data/test_share.h"

namespace trainyard {
namespace {

using Part = ListedFile::Part;
constexpr std::array<std::string_view, 3> kTestFolders = {"test", "val", "valid"};

/// A class's name with its value as a whole number.
using NumberedName = std::pair<int64_t, std::string>;

/// Returns the names with their values; nullopt unless all are whole numbers.
std::optional<std::vector<NumberedName>> numbered(const std::set<std::string_view>& names) {
  std::vector<NumberedName> result;
  for (const std::string_view name : names) {
    int64_t value = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data(), end, value);
    if (error != std::errc() || stop != end) return std::nullopt;
    result.emplace_back(value, name);
  }
  return result;
}

/// Returns the names sorted, as numbers if all are whole numbers.
std::vector<std::string> sorted_classes(const std::set<std::string_view>& names) {
  std::vector<std::string> classes;
  auto numbers = numbered(names);
  if (!numbers) {
    classes.assign(names.begin(), names.end());
    return classes;
  }
  std::ranges::sort(*numbers);
  for (auto& [value, name] : *numbers) classes.push_back(std::move(name));
  return classes;
}

}  // namespace

std::string_view first_part(std::string_view path) { return path.substr(0, path.find('/')); }

std::string_view below_first(std::string_view path) {
  const size_t slash = path.find('/');
  return slash == path.npos ? std::string_view() : path.substr(slash + 1);
}

Status check_paths(const ListedFiles& files, const std::string& what) {
  std::vector<std::string_view> paths;
  for (const ListedFile* file : files) paths.push_back(file->path);
  std::ranges::sort(paths);
  const auto twice = std::ranges::adjacent_find(paths);
  if (twice == paths.end()) return {};
  return field_error("ARCHIVE_UNSAFE", place_in_tree(what, std::string(*twice)),
                     "the archive contains this path twice");
}

size_t root_of(const ListedFiles& files, bool partitioned, bool in_folders) {
  const std::string_view root = first_part(files.front()->path);
  if (partitioned && root == "train") return 0;
  for (const ListedFile* file : files) {
    const std::string_view rest = below_first(file->path);
    if (rest.empty() || first_part(file->path) != root) return 0;
    if (in_folders && below_first(rest).empty()) return 0;
  }
  return root.size() + 1;
}

Result<Parts> split_parts(const ListedFiles& files, ShortPaths& paths, const std::string& what) {
  const auto below = [&](std::string_view folder) {
    return std::any_of(paths.begin(), paths.end(), [&](std::string_view path) {
      return !below_first(path).empty() && first_part(path) == folder;
    });
  };
  Parts parts;
  if (!below("train")) return parts;
  const auto test = std::find_if(kTestFolders.begin(), kTestFolders.end(), below);
  parts.has_test = test != kTestFolders.end();
  Problems problems;
  for (size_t i = 0; i < paths.size(); ++i) {
    ListedFile& file = *files[i];
    const std::string_view folder = first_part(paths[i]);
    const bool known =
        std::find(kTestFolders.begin(), kTestFolders.end(), folder) != kTestFolders.end();
    if (below_first(paths[i]).empty() || (folder != "train" && !known)) {
      problems.add(place_in_tree(what, file.path),
                   "is outside of train/, expected it in train/ or test/ (or val/, valid/)");
      continue;
    }
    if (folder != "train") file.part = folder == *test ? Part::kTest : Part::kLeftOut;
    paths[i] = below_first(paths[i]);
  }
  if (!problems.empty()) return problems.error();
  return parts;
}

void check_class(std::string_view name, const std::string& place, Problems& problems) {
  if (!is_utf8(name)) {
    problems.add(place, "the class " + quoted_value(name) + " is not UTF-8");
  } else if (name.empty() || name.size() > kNameBytesMax) {
    problems.add(place, "a class's name of " + std::to_string(name.size()) +
                            " bytes, expected 1 to " + std::to_string(kNameBytesMax));
  }
}

Status label_by_folder(const ListedFiles& files, const ShortPaths& paths, const std::string& what,
                       const std::string& otherwise) {
  Problems problems;
  for (size_t i = 0; i < paths.size(); ++i) {
    ListedFile& file = *files[i];
    if (file.part == Part::kLeftOut) continue;
    const std::string place = place_in_tree(what, file.path);
    if (below_first(paths[i]).empty()) {
      problems.add(place, "is not in a class's folder; " + otherwise);
      continue;
    }
    file.label = nfc(first_part(paths[i]));
    check_class(file.label, place, problems);
  }
  return problems.empty() ? Status() : Status(problems.error());
}

void draw_test_files(const ListedFiles& files, double share, uint64_t seed) {
  const ListedFiles train = files_of(files, Part::kTrain);
  std::map<std::string_view, int32_t> groups;  // labels, numbered in sorted order
  for (const ListedFile* file : train) groups.emplace(file->label, 0);
  int32_t next = 0;
  for (auto& [label, group] : groups) group = next++;
  std::vector<int32_t> group_of;
  for (const ListedFile* file : train) group_of.push_back(groups.at(file->label));
  const std::vector<bool> drawn = draw_test_rows(group_of, share, seed);
  for (size_t i = 0; i < train.size(); ++i) {
    if (drawn[i]) train[i]->part = Part::kTest;
  }
}

Result<std::vector<std::string>> find_classes(const ListedFiles& train, const std::string& noun) {
  std::set<std::string_view> names;
  for (const ListedFile* file : train) names.insert(file->label);
  if (std::ssize(names) >= 2 && std::ssize(names) <= kClassFoldersMax) {
    return sorted_classes(names);
  }
  return dataset_error("data", (names.size() == 1 ? "every " + noun + " to train is of the class " +
                                                        quoted_value(*names.begin())
                                                  : std::to_string(names.size()) + " classes") +
                                   ", expected 2 to " + std::to_string(kClassFoldersMax) +
                                   " classes, each a folder or a name in the labels");
}

void set_codes(const ListedFiles& files, const std::vector<std::string>& classes,
               const std::string& what, const std::string& noun, Problems& problems) {
  std::unordered_map<std::string_view, int32_t> codes;
  for (const std::string& name : classes) codes.emplace(name, static_cast<int32_t>(codes.size()));
  std::set<std::string_view> reported;
  for (ListedFile* file : files) {
    if (file->part == Part::kLeftOut) continue;
    const auto at = codes.find(file->label);
    if (at != codes.end()) {
      file->code = at->second;
    } else if (reported.insert(file->label).second) {
      problems.add(place_in_tree(what, file->path),
                   "the class " + quoted_value(file->label) + " has no " + noun + " to train");
    }
  }
}

ListedFiles files_of(const ListedFiles& files, Part part) {
  ListedFiles found;
  std::ranges::copy_if(files, std::back_inserter(found),
                       [part](const ListedFile* file) { return file->part == part; });
  return found;
}

}  // namespace trainyard
