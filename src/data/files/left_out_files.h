// src/data/files/left_out_files.h: reports what of a folder or an archive does not become rows:
// files of other kinds, and folders without rows.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/files/class_folders.h"
#include "src/data/schema.h"

namespace trainyard {

class LeftOutFiles {
 public:
  /// `reason` says what the file is: "not a JPEG or PNG image". `detail`, if any, is shown after
  /// the file's name.
  void add(const std::string& reason, const std::string& path, const std::string& detail = "");
  /// Sets the folder around everything (root_of()), "photos/", which messages leave out.
  void set_root(std::string root) { root_ = std::move(root); }
  void add_empty_folders(const std::vector<std::string>& folders);
  int64_t count() const;
  /// Adds LEFT_OUT_FILES for each reason, and FOLDERS_WITHOUT_ROWS if there are any. `rows` are all
  /// files of the kind that becomes rows, which `noun` names ("image").
  void add_warnings(const ListedFiles& rows, const std::string& noun,
                    std::vector<DataWarning>& warnings) const;

 private:
  struct Group {
    int64_t count = 0;
    std::map<std::string, std::string> first;  // the first files: path and detail
  };
  std::vector<std::string> folders_without(const ListedFiles& rows) const;
  std::string shown(const std::string& path) const;

  std::map<std::string, Group> groups_;  // by reason
  std::string root_;
  std::set<std::string> folders_;  // those of left-out files, empty ones, and those above them
};

/// Adds the files that split_parts() has left out.
void add_left_out_part(const ListedFiles& files, LeftOutFiles& left_out);

/// Adds ALIKE_CLASSES for classes whose names differ only in case or in the mark of a copy: 'cats'
/// and 'cats (copy)'.
void add_alike_classes(const std::vector<std::string>& classes, std::vector<DataWarning>& warnings);

}  // namespace trainyard
