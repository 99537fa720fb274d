#include "src/data/files/left_out_files.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "src/base/join.h"
#include "src/base/text.h"

namespace trainyard {
namespace {

constexpr size_t kListedMax = 16;

/// Calls visit(folder) for each folder above `path`, the nearest first, until it returns false.
template <typename Visit>
void visit_folders(std::string_view path, const Visit& visit) {
  for (size_t slash = path.rfind('/'); slash != path.npos; slash = path.rfind('/', slash - 1)) {
    if (!visit(path.substr(0, slash)) || slash == 0) return;
  }
}

std::string listed(const std::vector<std::string>& names, int64_t count) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kListedMax); ++i) {
    text += (i > 0 ? ", " : "") + names[i];
  }
  return count > static_cast<int64_t>(kListedMax) ? text + ", ..." : text;
}

/// Returns the name in lower case without the mark that file managers give to copies.
std::string stem_of(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kWords = {"copy", "kopie", "copie", "copia"};
  std::string stem = lower(name);
  const auto cut = [&](const std::string& ending) {
    if (stem.size() <= ending.size() || !stem.ends_with(ending)) return false;
    stem.resize(stem.size() - ending.size());
    return true;
  };
  if (stem.ends_with(')') && stem.size() > 4) {  // "cats (2)"
    const std::string_view end = std::string_view(stem).substr(stem.size() - 4);
    if (end.starts_with(" (") && end[2] >= '1' && end[2] <= '9') cut(std::string(end));
  }
  for (const std::string_view word : kWords) {
    const std::string text(word);
    for (const std::string& mark :
         {" (" + text + ")", " - " + text, " " + text, "_" + text, "-" + text}) {
      if (cut(mark)) return stem;
    }
  }
  constexpr std::string_view kStart = "copy of ";
  return stem.size() > kStart.size() && stem.starts_with(kStart) ? stem.substr(kStart.size())
                                                                 : stem;
}

}  // namespace

void LeftOutFiles::add(const std::string& reason, const std::string& path,
                       const std::string& detail) {
  Group& group = groups_[reason];
  ++group.count;
  group.first.emplace(path, detail);
  if (group.first.size() > kListedMax) group.first.erase(std::prev(group.first.end()));
  visit_folders(path, [&](std::string_view folder) { return folders_.emplace(folder).second; });
}

void LeftOutFiles::add_empty_folders(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    visit_folders(folder + "/",
                  [&](std::string_view above) { return folders_.emplace(above).second; });
  }
}

int64_t LeftOutFiles::count() const {
  return std::accumulate(groups_.begin(), groups_.end(), int64_t{0},
                         [](int64_t sum, const auto& entry) { return sum + entry.second.count; });
}

std::string LeftOutFiles::shown(const std::string& path) const {
  return quoted_value(path.starts_with(root_) ? path.substr(root_.size()) : path);
}

std::vector<std::string> LeftOutFiles::folders_without(const ListedFiles& rows) const {
  std::set<std::string_view> with_rows;
  for (const ListedFile* row : rows) {
    visit_folders(row->path,
                  [&](std::string_view folder) { return with_rows.insert(folder).second; });
  }
  std::vector<std::string> without;
  for (const std::string& folder : folders_) {
    const size_t slash = folder.rfind('/');
    // Below a folder without rows, only the outermost one is reported.
    const bool outermost =
        slash == folder.npos || with_rows.contains(std::string_view(folder).substr(0, slash));
    if (outermost && !with_rows.contains(folder)) {
      without.push_back(shown(folder));
    }
  }
  return without;
}

void LeftOutFiles::add_warnings(const ListedFiles& rows, const std::string& noun,
                                std::vector<DataWarning>& warnings) const {
  for (const auto& [reason, group] : groups_) {
    std::vector<std::string> files;
    for (const auto& [path, detail] : group.first) {
      files.push_back(shown(path) + (detail.empty() ? "" : " (" + detail + ")"));
    }
    warnings.push_back({"LEFT_OUT_FILES",
                        {},
                        group.count,
                        std::to_string(group.count) +
                            (group.count == 1 ? " file is" : " files are") + " left out (" +
                            reason + "): " + listed(files, group.count) + "."});
  }
  const std::vector<std::string> without = folders_without(rows);
  if (!without.empty()) {
    const auto count = std::ssize(without);
    warnings.push_back(
        {"FOLDERS_WITHOUT_ROWS",
         {},
         count,
         "there is no " + noun + " in " +
             (count == 1 ? std::string("the folder ") : std::to_string(count) + " folders: ") +
             listed(without, count) + "."});
  }
}

void add_left_out_part(const ListedFiles& files, LeftOutFiles& left_out) {
  for (const ListedFile* file : files) {
    if (file->part == ListedFile::Part::kLeftOut) left_out.add("in another test set", file->path);
  }
}

void add_alike_classes(const std::vector<std::string>& classes,
                       std::vector<DataWarning>& warnings) {
  std::map<std::string, std::vector<std::string_view>> by_stem;
  for (const std::string& name : classes) by_stem[stem_of(name)].push_back(name);
  const size_t end = warnings.size() + kListedMax;
  for (const auto& [stem, names] : by_stem) {
    if (warnings.size() == end) break;
    if (stem.size() < 2) continue;  // 'A' and 'a' may be letters to recognize
    // Without a bare name, numbers in brackets may be part of the names.
    const auto bare = [&text = stem](std::string_view name) { return lower(name) == text; };
    if (names.size() < 2 || std::ranges::none_of(names, bare)) continue;
    std::vector<std::string> quoted;
    for (const std::string_view name : names) quoted.push_back(quoted_value(name));
    warnings.push_back(
        {"ALIKE_CLASSES",
         {},
         std::ssize(names),
         "the classes " + joined(quoted, " and ") +
             " look like one class and its copy. If they are, remove the copy or move "
             "its files into the class."});
  }
}

}  // namespace trainyard
