#include "src/data/typed_writer.h"

#include <algorithm>

#include "src/base/mutex.h"
#include "src/base/sha256.h"
#include "src/checkpoint/safetensors.h"
#include "src/data/typed_rows.h"

namespace trainyard {
namespace {

/// Returns the arrays, those with the largest elements first, so that each is aligned in the file.
/// The arrays of streamed images have no bytes yet.
std::vector<TensorView> arrays_of(const DatasetSchema& schema, Partition train, Partition test) {
  std::vector<TensorView> arrays;
  const auto add = [&](const std::string& name, const TensorType& type, auto& span) {
    arrays.push_back({name, type, std::as_bytes(span)});
  };
  visit_arrays(schema, "train", train, add);
  visit_arrays(schema, "test", test, add);
  std::stable_sort(arrays.begin(), arrays.end(), [](const TensorView& a, const TensorView& b) {
    return size_of(a.type.dtype) > size_of(b.type.dtype);
  });
  return arrays;
}

Result<std::string> write_streamed(Files& files, const std::filesystem::path& path,
                                   TypedDataset& data) {
  const Shape& image = data.schema.image;
  for (TypedRows* rows : {&data.train, &data.test}) {
    rows->image_sums.resize(static_cast<size_t>(rows->rows * image[0] * 2));
  }
  const std::vector<TensorView> arrays =
      arrays_of(data.schema, data.train.view(), data.test.view());
  ASSIGN_OR_RETURN(const SafetensorsLayout layout, lay_out_safetensors(arrays));
  int64_t train_offset = 0;
  int64_t test_offset = 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].name == "train.image") train_offset = layout.offsets[i];
    if (arrays[i].name == "test.image") test_offset = layout.offsets[i];
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<FileFiller> file, files.create_file(path, layout.bytes));
  Mutex mu;  // guards image_ranges
  data.train.image_ranges.resize(static_cast<size_t>(image[0]));
  const auto sink = [&](bool test, int64_t row, std::span<const uint8_t> pixels) -> Status {
    std::vector<int64_t>& sums = (test ? data.test : data.train).image_sums;
    const std::vector<int64_t> own = sum_images(pixels, 1, image);
    std::copy(own.begin(), own.end(), sums.begin() + row * std::ssize(own));
    if (!test) {
      std::vector<ByteRange> ranges(static_cast<size_t>(image[0]));
      widen_ranges(pixels, ranges);
      const MutexLock lock(mu);
      for (size_t c = 0; c < ranges.size(); ++c) data.train.image_ranges[c].widen(ranges[c]);
    }
    return file->write_at((test ? test_offset : train_offset) + row * image.elements(),
                          std::as_bytes(pixels));
  };
  if (Status s = data.images->write(sink); !s.ok()) return std::move(s).error();
  if (Status s = file->write_at(0, std::as_bytes(std::span(layout.prefix))); !s.ok()) {
    return std::move(s).error();
  }
  // The sums have been filled in place since `arrays` was built, so its spans are still valid.
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].bytes.empty()) continue;
    if (Status s = file->write_at(layout.offsets[i], arrays[i].bytes); !s.ok()) {
      return std::move(s).error();
    }
  }
  if (Status s = file->finish(); !s.ok()) return std::move(s).error();
  return sha256_file(path);
}

}  // namespace

Result<std::string> write_typed_dataset(Files& files, const std::filesystem::path& path,
                                        TypedDataset& data) {
  if (data.images) return write_streamed(files, path, data);
  return write_safetensors_in_place(
      files, path, arrays_of(data.schema, data.train.view(), data.test.view()), {});
}

}  // namespace trainyard
