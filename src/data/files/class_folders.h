// src/data/files/class_folders.h: determines partitions and classes of image and text files from
// their folders.
//
//   cats/1.jpg, dogs/a/2.png            the first folder is the class
//   train/cats/1.jpg, test/cats/2.jpg   partitions; without test/, val/ or valid/ is the test set
//   photos/...                          a folder around all of this is ignored
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.h"
#include "src/data/problems.h"

namespace trainyard {

struct ListedFile {
  enum class Part : uint8_t { kTrain, kTest, kLeftOut };
  std::string path;
  Part part = Part::kTrain;
  std::string label;  // the class's name
  int32_t code = -1;  // the class's index, once all classes are known
  int64_t row = -1;   // the file's row in its partition
};
using ListedFiles = std::vector<ListedFile*>;

/// Paths relative to the root and, once partitions are known, to the partition's folder.
using ShortPaths = std::vector<std::string_view>;

std::string_view first_part(std::string_view path);
/// Returns the path without its first component; empty if it has only one.
std::string_view below_first(std::string_view path);

/// Refuses duplicate paths (ARCHIVE_UNSAFE).
Status check_paths(const ListedFiles& files, const std::string& what);

/// Returns the length of the prefix that all paths share because a folder contains everything, as
/// in many archives: that of "photos/" for "photos/cats/1.jpg". 0 if there is none. If
/// `in_folders`, each file must still be in a folder below it.
size_t root_of(const ListedFiles& files, bool partitioned, bool in_folders);

struct Parts {
  bool has_test = false;
};
/// Sets `part` of each file by its partition's folder, which it removes from the path.
Result<Parts> split_parts(const ListedFiles& files, ShortPaths& paths, const std::string& what);

/// Sets `label` to the name of the class's folder. A refusal of a file outside of such folders ends
/// with the advice `otherwise`.
Status label_by_folder(const ListedFiles& files, const ShortPaths& paths, const std::string& what,
                       const std::string& otherwise);

/// Adds a problem if `name` is no valid name for a class.
void check_class(std::string_view name, const std::string& place, Problems& problems);

/// Moves `share` of each class's training files to the test set. `files` must be sorted by path.
void draw_test_files(const ListedFiles& files, double share, uint64_t seed);

/// Returns the classes of the training files, sorted: as numbers if all are whole numbers. `noun`
/// names a file in messages ("image").
Result<std::vector<std::string>> find_classes(const ListedFiles& train, const std::string& noun);
/// Sets each file's code. Adds a problem for each class that is not in `classes`.
void set_codes(const ListedFiles& files, const std::vector<std::string>& classes,
               const std::string& what, const std::string& noun, Problems& problems);

/// Returns the files of one partition, in the order of `files`.
ListedFiles files_of(const ListedFiles& files, ListedFile::Part part);

}  // namespace trainyard
