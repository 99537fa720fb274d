#include "client/lib/tensorboard.h"

#include <cmath>

#include "src/base/crc32c.h"
#include "tensorboard/event.pb.h"

namespace trainyard::client {
namespace {

template <typename T>
std::string little_endian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) {
    bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
  return bytes;
}

/// Returns the CRC as event files store it, rotated and offset, because the CRC of data that
/// contains CRCs is weak.
uint32_t masked_crc32c(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

Error storage_error(const std::filesystem::path& path) {
  return make_error(
      ErrorCode::kUnavailable, "STORAGE_ERROR",
      "cannot write " + path.string() + "; is the folder writable and the disk full?");
}

}  // namespace

std::string tensorboard_record(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  std::string record = length + little_endian(masked_crc32c(length));
  record += data;
  return record + little_endian(masked_crc32c(data));
}

Result<TensorBoardFile> TensorBoardFile::create(const std::filesystem::path& folder, double time_s,
                                                const std::string& name) {
  std::error_code ec;
  std::filesystem::create_directories(folder, ec);
  if (ec) return storage_error(folder);
  const std::filesystem::path path =
      folder /
      ("events.out.tfevents." + std::to_string(std::llround(std::floor(time_s))) + "." + name);
  TensorBoardFile file(path, std::ofstream(path, std::ios::binary | std::ios::trunc));
  tensorboard::Event event;
  event.set_wall_time(time_s);
  event.set_file_version("brain.Event:2");
  file.file_ << tensorboard_record(event.SerializeAsString());
  if (Status s = file.flush(); !s.ok()) return std::move(s).error();
  return file;
}

void TensorBoardFile::add(const std::string& key, const MetricSample& sample) {
  tensorboard::Event event;
  event.set_wall_time(sample.time_s);
  event.set_step(sample.step);
  tensorboard::Summary::Value& value = *event.mutable_summary()->add_value();
  value.set_tag(key);
  value.set_simple_value(static_cast<float>(sample.value));
  file_ << tensorboard_record(event.SerializeAsString());
}

Status TensorBoardFile::flush() {
  file_.flush();
  if (!file_) return storage_error(path_);
  return {};
}

}  // namespace trainyard::client
