// Tests of broken and malicious files: each is refused with a sentence and has no other effect. A
// file written by PyTorch is truncated at every byte and changed at every byte; other files are
// built with specific mistakes. The tests catch a false length that is trusted, and a path that
// leaves the model's folder.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "src/base/protobuf_message.h"
#include "tests/onnx/import_support.h"
#include "tests/support/source_path.h"

namespace trainyard::onnx {
namespace {

namespace fs = std::filesystem;
using testing::floats;
using testing::model_of;

std::vector<std::byte> golden_file(const std::string& name) {
  const auto file =
      SafetensorsFile::open(testing::source_path("tests/golden/onnx_models.safetensors")).value();
  const TensorView* view = file.find(name + "/model");
  TRAINYARD_CHECK(view != nullptr, name);
  return {view->bytes.begin(), view->bytes.end()};
}

Result<ImportedModel> import_bytes(std::span<const std::byte> bytes, const fs::path& folder = {}) {
  ASSIGN_OR_RETURN(const OnnxFile file, OnnxFile::parse(bytes, folder));
  return import_model(file, {});
}

std::string refusal(const std::string& bytes, const fs::path& folder = {}) {
  const auto model = import_bytes(std::as_bytes(std::span(bytes)), folder);
  EXPECT_FALSE(model.ok());
  return model.ok() ? "" : model.error().message;
}

#define EXPECT_REPORTS(text, part) \
  EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(OnnxBadInput, AcceptsTheUnchangedFiles) {
  const std::string good = model_of({{"Relu", {"x"}, {"y"}}});
  EXPECT_TRUE(import_bytes(std::as_bytes(std::span(good))).ok());
}

TEST(OnnxBadInput, ATruncationAtAnyByteIsRefusedOrACompleteModel) {
  const std::vector<std::byte> whole = golden_file("mlp_torchscript");
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto model = import_bytes(std::span(whole).first(size));
    EXPECT_TRUE(model.ok() || !model.error().message.empty());
  }
}

TEST(OnnxBadInput, AChangeOfAnyByteNeverCrashes) {
  for (const auto& [name, step] : {std::pair("mlp_torchscript", 1), {"residual_torchscript", 5}}) {
    std::vector<std::byte> bytes = golden_file(name);
    int taken = 0;
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(step)) {
      const std::byte before = bytes[i];
      for (const int change : {0x01, 0x80}) {
        bytes[i] = before ^ static_cast<std::byte>(change);
        taken += import_bytes(bytes).ok();
      }
      bytes[i] = before;
    }
    EXPECT_GT(taken, 0) << "most bytes are weights and names";
  }
}

TEST(OnnxBadInput, WrongLengthsAreRefusedBeforeMemoryIsAllocated) {
  // The first file claims a graph of 2^60 bytes, the second a tensor of 2^39 elements of which it
  // has four bytes.
  EXPECT_REPORTS(refusal(std::string("\x3a\x80\x80\x80\x80\x80\x80\x80\x80\x10", 10)), "are left");
  const std::string huge = model_of({{"Add", {"x", "w"}, {"y"}}}, [] {
    std::vector<ProtobufMessage> t;
    t.push_back(floats("w", {1 << 20, 1 << 19}, "\1\1\1\1"));
    return t;
  }());
  EXPECT_REPORTS(refusal(huge), "has 4 bytes of data");
  std::vector<ProtobufMessage> impossible;
  impossible.push_back(floats("w", {int64_t{1} << 62, 4}, "\1\1\1\1"));
  EXPECT_REPORTS(refusal(model_of({{"Add", {"x", "w"}, {"y"}}}, std::move(impossible))),
                 "impossible");
}

TEST(OnnxBadInput, InvalidGraphsAreRefused) {
  EXPECT_REPORTS(refusal(""), "no graph");
  EXPECT_REPORTS(refusal("\xff"), "not a valid ONNX file");
  EXPECT_REPORTS(refusal(model_of({{"Add", {"x", "y"}, {"z"}}, {"Relu", {"z"}, {"y"}}})),
                 "reads 'y'");
  EXPECT_REPORTS(refusal(model_of({{"Add", {"x", "w"}, {"y"}}})), "reads 'w'");
  EXPECT_REPORTS(refusal(model_of({{"Relu", {"x"}, {"y"}}, {"Neg", {"x"}, {"y"}}})),
                 "another node also produces");
  EXPECT_REPORTS(refusal(model_of({{"Relu", {"x"}, {"z"}}})), "no output of the file depends");
  EXPECT_REPORTS(refusal(model_of({{"Add", {"x"}, {"y"}}})), "needs two inputs");
  EXPECT_REPORTS(refusal(model_of({{"Relu", {}, {"y"}}})), "no output of the file depends");
  EXPECT_REPORTS(refusal(model_of({{"Clip", {"x", "x"}, {"y"}}})),
                 "min is not a single constant number");
}

TEST(OnnxBadInput, AllUnknownOperationsAreNamedAtOnce) {
  const std::string text = refusal(
      model_of({{"Unique", {"x"}, {"a"}}, {"Bernoulli", {"a"}, {"b"}}, {"Unique", {"b"}, {"y"}}}));
  EXPECT_REPORTS(text, "Bernoulli ('the_Bernoulli')");
  EXPECT_REPORTS(text, "Unique ('the_Unique', 'the_Unique')");
}

TEST(OnnxBadInput, AnIndexBeyondAParameterIsRefused) {
  std::vector<ProtobufMessage> tensors;
  tensors.push_back(floats("w", {2, 2}, std::string(16, '\1')));
  tensors.push_back(
      floats("i", {3}, std::string("\0\0\0\0\0\0\x80\x3f\0\0\xe0\x40", 12)));  // 0, 1, 7
  const std::string text = refusal(model_of({{"Shape", {"w"}, {"s"}},
                                             {"CastLike", {"i", "s"}, {"k"}},
                                             {"Gather", {"w", "k"}, {"g"}},
                                             {"Add", {"x", "g"}, {"y"}}},
                                            std::move(tensors)));
  EXPECT_REPORTS(text, "out of range");
}

TEST(OnnxBadInput, NodesWithoutInputsAreRefused) {
  for (const char* op : {"Cast", "Shape", "Size", "GlobalAveragePool"}) {
    EXPECT_REPORTS(refusal(model_of({{op, {}, {"a"}}, {"Add", {"x", "a"}, {"y"}}})), "has no input")
        << op;
  }
}

std::vector<ProtobufMessage> tensor_list(ProtobufMessage a, ProtobufMessage b) {
  std::vector<ProtobufMessage> tensors;
  tensors.push_back(std::move(a));
  tensors.push_back(std::move(b));
  return tensors;
}

TEST(OnnxBadInput, NodesWithoutTheirFirstInputAreRefused) {
  for (const char* op : {"Identity", "Dropout"}) {
    EXPECT_REPORTS(refusal(model_of({{op, {"", "x"}, {"y"}}})), "has no input") << op;
  }
  EXPECT_REPORTS(refusal(model_of({{"Concat", {"", "x"}, {"y"}}})), "input 0 is left out");
}

TEST(OnnxBadInput, AConstantOfManyDimensionsIsRefused) {
  std::string ones;
  for (int i = 0; i < 65; ++i) ones += std::string("\0\0\x80\x3f", 4);
  auto tensors = tensor_list(floats("w", {2}, std::string(8, '\1')), floats("ones", {65}, ones));
  EXPECT_REPORTS(refusal(model_of({{"Shape", {"w"}, {"s"}},
                                   {"CastLike", {"ones", "s"}, {"shape"}},
                                   {"ConstantOfShape", {"shape"}, {"c"}},
                                   {"Add", {"x", "c"}, {"y"}}},
                                  std::move(tensors))),
                 "more than 64 dimensions");
}

TEST(OnnxBadInput, AConstantIsNotCutIntoAnyNumberOfParts) {
  auto tensors = tensor_list(floats("w", {70000}, std::string(280000, '\1')),
                             floats("i", {}, std::string(4, '\0')));
  EXPECT_REPORTS(refusal(model_of({{"Shape", {"x"}, {"s"}},
                                   {"CastLike", {"i", "s"}, {"k"}},
                                   {"SplitToSequence", {"w"}, {"parts"}},
                                   {"SequenceAt", {"parts", "k"}, {"a"}},
                                   {"Add", {"x", "a"}, {"y"}}},
                                  std::move(tensors))),
                 "more than 65536 parts");
}

// --- constants that differ between samples ---

/// Returns a file that adds to `x` what `nodes` compute of the whole numbers i0, i1, i2 and the
/// numbers of the samples, r.
std::string model_of_samples(const std::vector<testing::FileNode>& nodes) {
  std::vector<testing::FileNode> all = {{"Shape", {"x"}, {"s"}},
                                        {"CastLike", {"zero", "s"}, {"i0"}},
                                        {"CastLike", {"one", "s"}, {"i1"}},
                                        {"CastLike", {"two", "s"}, {"i2"}},
                                        {"Gather", {"s", "i0"}, {"n"}},
                                        {"Range", {"i0", "n", "i1"}, {"r"}}};
  all.insert(all.end(), nodes.begin(), nodes.end());
  std::vector<ProtobufMessage> tensors = tensor_list(
      floats("zero", {}, std::string(4, '\0')), floats("one", {}, std::string("\0\0\x80\x3f", 4)));
  tensors.push_back(floats("two", {}, std::string("\0\0\0\x40", 4)));
  return model_of(all, std::move(tensors));
}

/// Returns a file that adds to each sample the result of an operation on its number.
std::string model_of_sample(const std::string& op, const std::string& operand) {
  return model_of_samples({{op, {"r", operand}, {"d"}},
                           {"CastLike", {"d", "x"}, {"f"}},
                           {"Unsqueeze", {"f", "i1"}, {"u"}},
                           {"Add", {"x", "u"}, {"y"}}});
}

TEST(OnnxBadInput, NumbersOfSamplesAreNotThoseOfTheFirstTwo) {
  for (const char* op : {"Div", "Less", "LessOrEqual", "Equal", "Max"}) {
    EXPECT_REPORTS(refusal(model_of_sample(op, "i2")), "numbers that differ between samples") << op;
  }
  EXPECT_REPORTS(refusal(model_of_sample("Add", "i2")), "differs between samples");
}

TEST(OnnxBadInput, WhatHoldsForTheNumbersOfAllSamplesIsTaken) {
  for (const char* op : {"Less", "GreaterOrEqual", "Sub", "Mul"}) {
    const std::string bytes = model_of_sample(op, std::string(op) == "Sub" ? "r" : "i0");
    const auto model = import_bytes(std::as_bytes(std::span(bytes)));
    EXPECT_TRUE(model.ok()) << op << (model.ok() ? "" : model.error().message);
  }
}

TEST(OnnxBadInput, SamplesAreNotCombinedWithEachOther) {
  EXPECT_REPORTS(refusal(model_of_samples({{"Unsqueeze", {"x", "i0"}, {"a"}},
                                           {"Unsqueeze", {"x", "i1"}, {"b"}},
                                           {"Add", {"a", "b"}, {"y"}}})),
                 "combines each sample with all samples");
}

// --- data in a separate file ---

class OnnxExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trainyard-onnx-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    fs::create_directories(root_ / "model" / "parts");
    for (const char* name : {"outside.bin", "model/inside.bin", "model/parts/deep.bin"}) {
      std::ofstream(root_ / name, std::ios::binary) << std::string("\0\0\x80\x3f\0\0\0\x40", 8);
    }
    fs::create_symlink(root_ / "outside.bin", root_ / "model" / "link.bin");
    fs::create_directory_symlink(root_, root_ / "model" / "up");
    fs::create_symlink("inside.bin", root_ / "model" / "near.bin");
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string model(const std::string& location, const std::string& offset = "",
                    const std::string& length = "") {
    ProtobufMessage t;
    t.add_int(1, 2);
    t.add_int(2, 1);
    t.add_text(8, "w");
    for (const auto& [key, text] :
         {std::pair("location", &location), {"offset", &offset}, {"length", &length}}) {
      if (text->empty()) continue;
      ProtobufMessage entry;
      entry.add_text(1, key);
      entry.add_text(2, *text);
      t.add_message(13, std::move(entry));
    }
    t.add_int(14, 1);
    std::vector<ProtobufMessage> tensors;
    tensors.push_back(std::move(t));
    return model_of({{"Add", {"x", "w"}, {"y"}}}, std::move(tensors));
  }
  fs::path folder() const { return root_ / "model"; }

  fs::path root_;
};

TEST_F(OnnxExternalData, IsReadFromTheModelsFolder) {
  for (const char* location : {"inside.bin", "parts/deep.bin", "near.bin"}) {
    const std::string bytes = model(location);
    const auto imported = import_bytes(std::as_bytes(std::span(bytes)), folder());
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    EXPECT_EQ(imported->weights.at(0).values, (std::vector<float>{1, 2})) << location;
  }
  const std::string bytes = model("inside.bin", "0", "8");
  EXPECT_TRUE(import_bytes(std::as_bytes(std::span(bytes)), folder()).ok());
}

TEST_F(OnnxExternalData, IsReadOnlyFromTheModelsFolder) {
  for (const std::string& location :
       {std::string("../outside.bin"), (root_ / "outside.bin").string(),
        std::string("parts/../../outside.bin"), std::string("link.bin"),
        std::string("up/outside.bin"), std::string("missing.bin"), std::string("parts"),
        std::string(), std::string("/dev/zero"), std::string("inside.bin\0x", 12)}) {
    EXPECT_REPORTS(refusal(model(location), folder()), "external location") << location;
  }
}

TEST_F(OnnxExternalData, StaysWithinTheOtherFile) {
  EXPECT_REPORTS(refusal(model("inside.bin", "1", "8"), folder()), "which has 8");
  EXPECT_REPORTS(refusal(model("inside.bin", "9223372036854775807", "8"), folder()), "which has 8");
  EXPECT_REPORTS(refusal(model("inside.bin", "4"), folder()), "has 4 bytes of data");
  EXPECT_REPORTS(refusal(model("inside.bin", "-4"), folder()), "expected a whole number");
  EXPECT_REPORTS(refusal(model("inside.bin", "four"), folder()), "expected a whole number");
}

}  // namespace
}  // namespace trainyard::onnx
