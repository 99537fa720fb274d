// Reads CIFAR-10 and CIFAR-100 in their binary form: records of one label byte (CIFAR-100: a coarse
// label, then the fine one) and 3 x 32 x 32 bytes, channel after channel. Source: Krizhevsky,
// "Learning multiple layers of features from tiny images" (2009), and the description that comes
// with the files.
#include <algorithm>
#include <map>
#include <optional>

#include "src/base/text.h"
#include "src/data/files/file_tree.h"
#include "src/data/limits.h"
#include "src/data/problems.h"
#include "src/data/typed_dataset.h"

namespace trainyard {
namespace {

constexpr int64_t kPixels = 3 * 32 * 32;
constexpr size_t kNamesBytesMax = size_t{1} << 20;
constexpr const char* kCifarData = "data";

struct CifarKind {
  int64_t classes;
  int64_t label_bytes;  // bytes before the pixels; the last one is the label
  std::string names_file;
};
const CifarKind kCifar10{10, 1, "batches.meta.txt"};
const CifarKind kCifar100{100, 2, "fine_label_names.txt"};

/// The dataset and the partition to which a file belongs by its name.
struct CifarFile {
  const CifarKind* kind;
  bool test;
};
std::optional<CifarFile> cifar_file(std::string_view name) {
  if (name == "train.bin") return CifarFile{&kCifar100, false};
  if (name == "test.bin") return CifarFile{&kCifar100, true};
  if (name == "test_batch.bin") return CifarFile{&kCifar10, true};
  if (name.starts_with("data_batch_") && name.ends_with(".bin")) return CifarFile{&kCifar10, false};
  return std::nullopt;
}

/// Appends the records of the tree's current file to `rows`.
Status read_records(FileTree& tree, const CifarKind& kind, const std::string& place,
                    TypedRows& rows) {
  const auto record_bytes = static_cast<size_t>(kind.label_bytes + kPixels);
  std::string record;
  for (bool more = true; more;) {
    record.clear();
    ASSIGN_OR_RETURN(more, tree.read(record, record_bytes));
    if (record.empty()) break;
    if (record.size() < record_bytes) {
      return dataset_error(place, "cut short: its last record has " +
                                      std::to_string(record.size()) + " bytes, expected " +
                                      std::to_string(record_bytes));
    }
    const int32_t label =
        static_cast<unsigned char>(record[static_cast<size_t>(kind.label_bytes) - 1]);
    if (label >= kind.classes) {
      return dataset_error(place, "record " + std::to_string(rows.rows + 1) + " has the label " +
                                      std::to_string(label) + ", expected 0 to " +
                                      std::to_string(kind.classes - 1));
    }
    rows.target_class.push_back(label);
    const auto* pixels = reinterpret_cast<const uint8_t*>(record.data()) + kind.label_bytes;
    rows.image_u8.insert(rows.image_u8.end(), pixels, pixels + kPixels);
    ++rows.rows;
  }
  return {};
}

/// Reads the name on each line; skips empty lines.
Result<std::vector<std::string>> read_names(const std::string& text, int64_t count,
                                            const std::string& place) {
  std::vector<std::string> names;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) names.emplace_back(line);
  }
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end());
  const bool good = std::ranges::all_of(
      names, [](const std::string& name) { return is_utf8(name) && name.size() <= kNameBytesMax; });
  if (std::ssize(names) != count || !good ||
      std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return dataset_error(place, std::to_string(names.size()) + " names, expected " +
                                    std::to_string(count) + " different ones, one per line");
  }
  return names;
}

}  // namespace

Result<TypedDataset> read_cifar_dataset(const std::filesystem::path& data) {
  ASSIGN_OR_RETURN(const std::unique_ptr<FileTree> tree, open_file_tree(data, kCifarData));
  // Batches are sorted by name, so that the order of files in an archive does not matter.
  std::map<std::string, TypedRows> train;
  TypedDataset result;
  const CifarKind* kind = nullptr;
  std::map<std::string, std::string> names;  // content of the files of class names, by file name
  bool has_test = false;
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, tree->next());
    if (!more) break;
    const std::string place = place_in_tree(kCifarData, tree->path());
    const std::string name = tree->path().substr(tree->path().rfind('/') + 1);
    if (name == kCifar10.names_file || name == kCifar100.names_file) {
      ASSIGN_OR_RETURN(names[name], read_tree_file(*tree, kNamesBytesMax, place));
    }
    const std::optional<CifarFile> file = cifar_file(name);
    if (!file) continue;
    if (kind != nullptr && kind != file->kind) {
      return dataset_error(place, "files of both CIFAR-10 and CIFAR-100, expected one of them");
    }
    kind = file->kind;
    if (file->test ? has_test : train.contains(name)) {
      return dataset_error(place, "a file of this name appears twice");
    }
    has_test |= file->test;
    TypedRows& rows = file->test ? result.test : train[name];
    if (Status s = read_records(*tree, *kind, place, rows); !s.ok()) return std::move(s).error();
  }
  if (train.empty()) {
    return dataset_error(kCifarData,
                         "there is neither data_batch_*.bin (CIFAR-10) nor train.bin (CIFAR-100); "
                         "is it the binary version?");
  }
  for (auto& [name, rows] : train) {
    TypedRows& all = result.train;
    all.image_u8.insert(all.image_u8.end(), rows.image_u8.begin(), rows.image_u8.end());
    all.target_class.insert(all.target_class.end(), rows.target_class.begin(),
                            rows.target_class.end());
    all.rows += rows.rows;
    rows = {};
  }
  DatasetSchema& schema = result.schema;
  schema.kind = DatasetSchema::Kind::kImage;
  schema.image = Shape{3, 32, 32};
  schema.target.name = "class";
  const auto given = names.find(kind->names_file);
  if (given != names.end()) {
    ASSIGN_OR_RETURN(
        schema.target.classes,
        read_names(given->second, kind->classes, place_in_tree(kCifarData, kind->names_file)));
  } else {
    for (int64_t i = 0; i < kind->classes; ++i) schema.target.classes.push_back(std::to_string(i));
  }
  for (TypedRows* rows : {&result.train, &result.test}) {
    rows->image_sums = sum_images(rows->image_u8, rows->rows, schema.image);
  }
  schema.train_rows = result.train.rows;
  schema.test_rows = result.test.rows;
  if (schema.train_rows == 0) return dataset_error(kCifarData, "there are no training images");
  return result;
}

}  // namespace trainyard
