// src/data/files/class_folders.h: files in a folder for each class, and the partitions above: what
// images and texts have in common.
//
//   cats/1.jpg, dogs/a/2.png            the first folder is the class
//   train/cats/1.jpg, test/cats/2.jpg   partitions; val/ or valid/ is the test set without a test/
//   photos/...                          a folder around either is passed over
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
  int64_t row = -1;   // in its partition
};
using ListedFiles = std::vector<ListedFile*>;

/// A path relative to its root and, once partitions are known, to its partition's folder.
using ShortPaths = std::vector<std::string_view>;

std::string_view first_part(std::string_view path);
/// The path below its first folder; empty if it is a file there.
std::string_view below_first(std::string_view path);

/// Refuses duplicate paths (ARCHIVE_UNSAFE).
Status check_paths(const ListedFiles& files, const std::string& what);

/// Bytes of a folder around everything, as archives often have it: "photos/" of
/// "photos/cats/1.jpg". Below it there are folders still, if `in_folders`.
size_t root_of(const ListedFiles& files, bool partitioned, bool in_folders);

/// Sets `part` by the partition's folder and takes it off each path. Tells whether there is a test
/// set, and adds the files that belong to no partition to `skipped`.
struct Parts {
  bool has_test = false;
  int64_t skipped = 0;
};
Result<Parts> split_parts(const ListedFiles& files, ShortPaths& paths, const std::string& what);

/// Sets `label` from the class's folder. `otherwise` is the advice if there is none.
Status label_by_folder(const ListedFiles& files, const ShortPaths& paths, const std::string& what,
                       const std::string& otherwise);

/// Adds what is wrong with a class's name.
void check_class(std::string_view name, const std::string& place, Problems& problems);

/// Moves `share` of each class's training files to the test set. Files are in the paths' order.
void draw_test_files(const ListedFiles& files, double share, uint64_t seed);

/// The classes of the files to train on, sorted. `noun` is what a file is called ("image").
Result<std::vector<std::string>> find_classes(const ListedFiles& train, const std::string& noun);
/// Sets each file's code; adds the classes that are none of `classes`.
void set_codes(const ListedFiles& files, const std::vector<std::string>& classes,
               const std::string& what, const std::string& noun, Problems& problems);

/// Those of one partition, in the given order.
ListedFiles files_of(const ListedFiles& files, ListedFile::Part part);

}  // namespace trainyard
