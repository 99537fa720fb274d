// Weights in several safetensors files. The tests fail if an index that lies is accepted, if its
// tensors are not those of one file, or if the merged bytes depend on how tensors were split.
#include "src/checkpoint/weights_index.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/checkpoint/merged_weights.h"
#include "src/checkpoint/safetensors.h"
#include "tests/data/temporary_folder.h"

namespace trainyard {
namespace {

using Json = nlohmann::json;

struct Tensor {
  std::string name, dtype;
  std::vector<int64_t> dims;
  std::string bytes;
};

const std::vector<Tensor> kTensors = {{"a.weight", "F32", {2}, "abcdefgh"},
                                      {"b.weight", "BF16", {3}, "ijklmn"},
                                      {"c.weight", "F16", {1, 2}, "opqr"},
                                      {"d.empty", "F32", {0}, ""}};

void write_shard(const std::filesystem::path& path, const std::vector<Tensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::string data;
  for (const Tensor& t : tensors) {
    header[t.name] = {{"dtype", t.dtype},
                      {"shape", t.dims},
                      {"data_offsets", {data.size(), data.size() + t.bytes.size()}}};
    data += t.bytes;
  }
  const std::string json = header.dump();
  std::string length(8, '\0');
  length[0] = static_cast<char>(json.size() & 0xff);
  length[1] = static_cast<char>(json.size() >> 8);
  std::ofstream(path, std::ios::binary) << length << json << data;
}

class WeightsIndexTest : public ::testing::Test {
 protected:
  const std::filesystem::path& folder() const { return folder_.path(); }
  std::filesystem::path index() const { return folder() / "model.safetensors.index.json"; }

  void write(const std::string& name, const std::vector<size_t>& tensors) {
    std::vector<Tensor> list;
    for (const size_t i : tensors) {
      list.push_back(kTensors[i]);
      map_[kTensors[i].name] = name;
    }
    write_shard(folder() / name, list);
  }
  void write_index(Json metadata = {{"total_size", 18}}) {
    std::ofstream(index()) << Json{{"metadata", std::move(metadata)}, {"weight_map", map_}};
  }
  std::string refusal() {
    const Result<WeightsFile> file = WeightsFile::open(index());
    return file.ok() ? "accepted" : file.error().message;
  }
  void write_two() {
    write("x-1.safetensors", {0, 2});
    write("x-2.safetensors", {1, 3});
    write_index();
  }

  TemporaryFolder folder_;
  Json map_ = Json::object();
};

std::string bytes_of(const MergedWeights& merged, int64_t piece) {
  std::string all;
  for (int64_t offset = 0; offset < merged.size(); offset += piece) {
    const int64_t count = std::min(piece, merged.size() - offset);
    std::string part;
    merged.read(offset, count, part);
    EXPECT_EQ(std::ssize(part), count);
    all += part;
  }
  return all;
}

TEST_F(WeightsIndexTest, TensorsOfAllFilesAreOneList) {
  write_two();
  const Result<WeightsFile> file = WeightsFile::open(index());
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto it = std::ranges::find(kTensors, file->tensors()[i].name, &Tensor::name);
    ASSERT_NE(it, kTensors.end());
    EXPECT_EQ(file->tensors()[i].dtype, it->dtype);
    EXPECT_EQ(file->tensors()[i].shape.dims(), it->dims);
    const auto bytes = file->bytes(i);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), it->bytes);
  }
}

TEST_F(WeightsIndexTest, MergedBytesAreAFileAndDoNotDependOnTheSplit) {
  write_two();
  Result<MergedWeights> merged = MergedWeights::merge(std::move(*WeightsFile::open(index())));
  ASSERT_TRUE(merged.ok());
  const std::string bytes = bytes_of(*merged, 7);
  EXPECT_EQ(bytes, bytes_of(*merged, 1 << 20));
  const auto file = WeightsFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())));
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const auto it = std::ranges::find(kTensors, file->tensors()[i].name, &Tensor::name);
    const auto part = file->bytes(i);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(part.data()), part.size()), it->bytes);
  }
  map_.clear();
  write("y-1.safetensors", {3});
  write("y-2.safetensors", {2, 1, 0});
  write_index();
  Result<MergedWeights> other = MergedWeights::merge(std::move(*WeightsFile::open(index())));
  EXPECT_EQ(bytes_of(*other, 5), bytes);
}

TEST_F(WeightsIndexTest, LiesAreNamedWithFileAndTensor) {
  write_two();
  EXPECT_EQ(refusal(), "accepted");
  write_index({{"total_size", 19}});
  EXPECT_EQ(refusal(),
            "model.safetensors.index.json: says that the tensors have 19 bytes "
            "(metadata.total_size), but the files have 18");
  map_["e.weight"] = "x-1.safetensors";
  write_index();
  EXPECT_EQ(
      refusal(),
      "model.safetensors.index.json: says that tensor 'e.weight' is in x-1.safetensors, which "
      "does not have it");
  map_.erase("e.weight");
  map_["a.weight"] = "x-2.safetensors";
  write_index();
  EXPECT_EQ(
      refusal(),
      "model.safetensors.index.json: says that tensor 'a.weight' is in x-2.safetensors, but it "
      "is in x-1.safetensors");
  map_.erase("a.weight");
  write_index();
  EXPECT_EQ(refusal(),
            "model.safetensors.index.json: does not list the tensor 'a.weight', which "
            "x-1.safetensors has");
  write("x-1.safetensors", {0, 1, 2});
  write("x-2.safetensors", {1, 3});
  write_index();
  EXPECT_EQ(refusal(),
            "model.safetensors.index.json: tensor 'b.weight' is in two files, x-1.safetensors and "
            "x-2.safetensors");
  std::filesystem::remove(folder() / "x-2.safetensors");
  EXPECT_NE(refusal().find("model.safetensors.index.json names the file 'x-2.safetensors': "),
            std::string::npos);
  std::ofstream(folder() / "x-2.safetensors") << "short";
  EXPECT_NE(refusal().find("names the file 'x-2.safetensors': safetensors: the file has 5 bytes"),
            std::string::npos);
}

TEST_F(WeightsIndexTest, OtherTextsAreRefused) {
  for (const char* text : {"", "[]", "{}", R"({"weight_map": {}})", R"({"weight_map": []})"}) {
    std::ofstream(index()) << text;
    EXPECT_NE(refusal().find("has no weight_map"), std::string::npos) << text;
  }
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "x.bin", "", "a/x.safetensors"}) {
    map_ = {{"a", name}};
    write_index();
    EXPECT_NE(refusal().find("expected the name of a safetensors file beside it"),
              std::string::npos)
        << name;
  }
  map_ = {{"a", 3}};
  write_index();
  EXPECT_NE(refusal().find("the file of tensor 'a' is '3'"), std::string::npos);
}

}  // namespace
}  // namespace trainyard
