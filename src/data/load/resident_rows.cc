#include "src/data/load/resident_rows.h"

#include <algorithm>
#include <bit>

#include "src/base/check.h"

namespace trainyard {
namespace {

constexpr int64_t kBytes = 256;                   // the number of different bytes
constexpr int64_t kPartBytes = int64_t{4} << 20;  // size of a part of computed rows

}  // namespace

int64_t ResidentForm::data_bytes() const {
  const int64_t elements = layout.windows ? rows : rows * layout.elements;
  return elements * (layout.bytes ? 1 : static_cast<int64_t>(sizeof(float)));
}
int64_t ResidentForm::table_bytes() const {
  return layout.bytes ? layout.C * kBytes * static_cast<int64_t>(sizeof(float)) : 0;
}
int64_t ResidentForm::fills_bytes() const {
  return layout.moved ? layout.C * 2 * static_cast<int64_t>(sizeof(float)) : 0;
}

ResidentForm resident_form(const DatasetSchema& schema, int64_t context_length, bool category_codes,
                           bool moved) {
  ResidentForm form;
  form.rows = schema.train_rows;
  kernels::ResidentRows& layout = form.layout;
  layout.elements = input_elements(schema, context_length, category_codes);
  layout.windows = schema.stream();
  if (schema.kind != DatasetSchema::Kind::kImage) return form;
  layout.C = schema.image[0];
  layout.H = schema.image[1];
  layout.W = schema.image[2];
  layout.bytes = schema.image_dtype == DType::kU8;
  layout.moved = moved;
  return form;
}

void visit_resident_rows(const ResidentForm& form, const RowTransform& transform,
                         const Partition& partition,
                         const std::function<void(std::span<const std::byte>)>& write) {
  TRAINYARD_CHECK(partition.rows == form.rows && transform.input_size() == form.layout.elements,
                  "rows of another dataset");
  if (form.layout.bytes) return write(std::as_bytes(partition.image_u8));
  if (transform.text()) return write(std::as_bytes(partition.tokens));
  const ImageEdit unchanged = [](int64_t, std::span<float>) {};
  const int64_t size = transform.input_size();
  const int64_t part =
      std::max<int64_t>(1, kPartBytes / static_cast<int64_t>(sizeof(float)) / size);
  std::vector<float> values;
  for (int64_t first = 0; first < form.rows; first += part) {
    const int64_t count = std::min(part, form.rows - first);
    values.resize(static_cast<size_t>(count * size));
    for (int64_t i = 0; i < count; ++i) {
      transform.apply(partition, first + i, values.data() + i * size,
                      form.layout.moved ? unchanged : nullptr);
    }
    write(std::as_bytes(std::span(values)));
  }
}

std::vector<float> resident_table(const ResidentForm& form, const RowTransform& transform) {
  std::vector<float> table;
  if (!form.layout.bytes) return table;
  for (int64_t c = 0; c < form.layout.C; ++c) {
    for (int64_t x = 0; x < kBytes; ++x) {
      table.push_back(form.layout.moved ? transform.standardize_edited(c, static_cast<float>(x))
                                        : transform.byte_table(c)[static_cast<size_t>(x)]);
    }
  }
  return table;
}

std::vector<float> resident_fills(const ResidentForm& form, const RowTransform& transform,
                                  std::span<const float> mean) {
  std::vector<float> fills;
  if (!form.layout.moved) return fills;
  TRAINYARD_CHECK(std::ssize(mean) == form.layout.C, "a mean for each channel");
  for (int64_t c = 0; c < form.layout.C; ++c) {
    fills.push_back(transform.standardize_edited(c, 0));
    fills.push_back(transform.standardize_edited(c, mean[static_cast<size_t>(c)]));
  }
  return fills;
}

kernels::ResidentSample resident_sample(const RowTransform& transform, const Partition& partition,
                                        int64_t row) {
  kernels::ResidentSample sample;
  if (transform.stream()) {
    sample.start = row;
    return sample;
  }
  sample.start = row * transform.input_size();
  const auto i = static_cast<size_t>(row);
  if (!partition.target_class.empty()) {
    sample.target = std::bit_cast<uint32_t>(partition.target_class[i]);
  } else if (!partition.target_numeric.empty()) {
    sample.target =
        std::bit_cast<uint32_t>(transform.standardize_target(partition.target_numeric[i]));
  }
  return sample;
}

}  // namespace trainyard
