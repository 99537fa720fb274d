// Tests of the options of `dataset upload`, which fill DatasetFile. They fail if a format or a
// field has no option, if an option gets lost, or if a refusal does not name the option.
#include "client/cli/upload_flags.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "client/cli/command.h"
#include "client/cli/help.h"

namespace trainyard::cli {
namespace {

using Arguments = std::vector<std::string>;

Result<v1::DatasetFile> read(Arguments arguments) {
  OptionSet options;
  UploadOptions o;
  add_upload_options(options, o);
  if (Status s = options.parse(std::move(arguments)); !s.ok()) return std::move(s).error();
  return dataset_of_flags(o);
}

void expect_read(const Arguments& arguments, const std::string& expected_text) {
  SCOPED_TRACE(::testing::PrintToString(arguments));
  const auto file = read(arguments);
  ASSERT_TRUE(file.ok()) << file.error().message;
  v1::DatasetFile expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(expected_text, &expected));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(*file, expected))
      << file->ShortDebugString();
}

std::string refusal(const Arguments& arguments) {
  const auto file = read(arguments);
  return file.ok() ? "accepted: " + file->ShortDebugString() : file.error().message;
}

TEST(UploadFlags, EveryFormatAndEachOfItsFieldsHasAnOption) {
  const std::vector<UploadFlag> flags = upload_flags();
  for (const spec::DatasetFormat& format : spec::dataset_formats()) {
    EXPECT_TRUE(format.at_path() == nullptr ||
                std::ranges::any_of(flags, [&](const auto& f) { return f.path_of == &format; }))
        << format.name();
    for (int i = 0; i < format.field->message_type()->field_count(); ++i) {
      const auto* field = format.field->message_type()->field(i);
      EXPECT_EQ(std::ranges::count_if(
                    flags, [&](const UploadFlag& f) { return f.field_of(format) == field; }),
                1)
          << field->full_name();
    }
  }
}

// The option is built from the first of its fields, so the other fields must have the same type.
TEST(UploadFlags, FieldsThatShareAnOptionHaveOneType) {
  for (const UploadFlag& flag : upload_flags()) {
    EXPECT_FALSE(flag.help.empty()) << flag.name;
    EXPECT_TRUE(flag.path_of == nullptr || flag.fields.empty()) << flag.name;
    for (const auto& [format, field] : flag.fields) {
      const auto* first = flag.fields.front().second;
      EXPECT_EQ(field->type(), first->type()) << flag.name;
      EXPECT_EQ(field->is_repeated(), first->is_repeated()) << flag.name;
      EXPECT_EQ(field->enum_type(), first->enum_type()) << flag.name;
    }
  }
}

TEST(UploadFlags, EachFormatIsReadWithItsFields) {
  expect_read({"--csv",       "a.csv",
               "--target",    "5",
               "--no-header", "--target-kind",
               "class",       "--delimiter",
               "\\t",         "--image",
               "1,8,8",       "--categorical",
               "a,b",         "--categorical",
               "c",           "--ignore",
               "d",           "--text-column",
               "e",           "--tokenizer",
               "bpe",         "--vocabulary-size",
               "500",         "--max-length",
               "64",          "--date",
               "f",           "--name",
               "n",           "--test",
               "b.csv"},
              R"(name: "n" path: "a.csv" test_path: "b.csv" csv { target: "5" header: false
                 target_kind: CLASS delimiter: "\t" image: [1, 8, 8] categorical: ["a,b", "c"]
                 ignore: "d" text: "e" tokenizer: BPE vocabulary_size: 500 max_length: 64
                 date: "f" })");
  expect_read({"--jsonl", "a", "--target", "y", "--text-column", "t"},
              R"(path: "a" jsonl { target: "y" text: "t" })");
  expect_read({"--libsvm", "a.svm"}, R"(path: "a.svm" libsvm {})");
  expect_read({"--text", "a", "--field", "body", "--test-share", "0.1", "--tokenizer", "CHAR"},
              R"(path: "a" text { field: "body" test_share: 0.1 tokenizer: CHAR })");
  expect_read({"--text-files", "a", "--max-length", "6", "--seed", "3"},
              R"(path: "a" text_files { max_length: 6 seed: 3 })");
  expect_read({"--images", "a", "--size", "32,16", "--resize", "pad", "--channels", "3", "--labels",
               "l.csv", "--test-share", "0.2"},
              R"(path: "a" images { size: [32, 16] resize: PAD channels: 3 labels: "l.csv"
                 test_share: 0.2 })");
  expect_read({"--cifar", "a"}, R"(path: "a" cifar {})");
  expect_read(
      {"--train-images", "a", "--train-labels", "b", "--test-images", "c", "--test-labels", "d"},
      R"(train_images: "a" train_labels: "b" test_images: "c" test_labels: "d")");
}

TEST(UploadFlags, InputsAreArraysOfAFileOrFiles) {
  expect_read({"--arrays", "a.npz", "--inputs", "x", "--targets", "y", "--target-kind", "numeric"},
              R"(path: "a.npz" arrays { inputs: "x" targets: "y" target_kind: NUMERIC })");
  expect_read({"--inputs", "x.npy", "--targets", "y.npy"}, R"(inputs: "x.npy" targets: "y.npy")");
  expect_read({"--inputs", "x.npy", "--targets", "y.npy", "--test-share", "0.5"},
              R"(inputs: "x.npy" targets: "y.npy" arrays { test_share: 0.5 })");
}

TEST(UploadFlags, PathsMayBeOnTheServer) {
  expect_read({"--on-server", "--csv", "/a", "--test", "/b", "--target", "y"},
              R"(server_path: "/a" server_test_path: "/b" csv { target: "y" })");
  EXPECT_EQ(refusal({"--on-server", "--train-images", "a", "--train-labels", "b"}),
            "--on-server: expected with --csv, --jsonl, --libsvm, --text, --text-files, --images, "
            "--cifar, --arrays or --documents");
}

TEST(UploadFlags, ErrorsNameTheOptionInTheWordsOfSpecFiles) {
  const auto csv = [](Arguments more) {
    more.insert(more.begin(), {"--csv", "a", "--target", "y"});
    return refusal(more);
  };
  EXPECT_EQ(csv({"--target-kind", "klass"}),
            "--target-kind: 'klass' is not known, expected class or numeric; did you mean "
            "'class'?");
  EXPECT_EQ(csv({"--image", "1,x,8"}), "--image: 'x', expected a whole number");
  EXPECT_EQ(csv({"--max-length", "9223372036854775808"}),
            "--max-length: 9223372036854775808 is out of range, expected "
            "-9223372036854775808..9223372036854775807");
  EXPECT_EQ(csv({"--delimiter", "::"}),
            "--delimiter: '::', expected one character such as \",\" or \";\"");
  EXPECT_EQ(csv({"--delimiter", "::", "--image", "1,,8"}), "the options have 2 problems");
  EXPECT_EQ(refusal({"--images", "a", "--seed", "-1"}),
            "--seed: -1 is out of range, expected 0..18446744073709551615");
  EXPECT_EQ(refusal({"--text", "a", "--test-share", ".1"}),
            "--test-share: '.1', expected a number such as 0.1");
  EXPECT_EQ(refusal({"--jsonl", "a"}), "--target: the member to predict");
  EXPECT_EQ(refusal({"--cifar", "a", "--test", "b"}),
            "--test: has no effect with cifar: its test set is stored with the training data");
  EXPECT_EQ(refusal({"--train-images", "a"}), "--train-labels: required for IDX files");
  EXPECT_EQ(csv({"--name", "d@2"}),
            "--name: 'd@2': new content gets its version from the server, expected a name "
            "without @");
}

TEST(UploadFlags, OptionsOfOtherFormatsAreRefused) {
  EXPECT_EQ(refusal({"--images", "a", "--target", "y"}),
            "--target: images has no such option, only csv and jsonl have");
  EXPECT_EQ(refusal({"--csv", "a", "--target", "y", "--no-header", "--size", "3,3"}),
            "--size: csv has no such option, only images has");
  EXPECT_EQ(refusal({"--csv", "a", "--images", "b"}),
            "--csv and --images: expected only one of --csv, --jsonl, --libsvm, --text, "
            "--text-files, --images, --cifar, --arrays or --documents");
  EXPECT_TRUE(refusal({"--csv", "a", "--target", "y", "--train-images", "b"})
                  .starts_with("the dataset: mixes several kinds of fields"));
  EXPECT_EQ(refusal({"--target", "y"}),
            "nothing to upload: expected one of --csv, --jsonl, --libsvm, --train-images, "
            "--train-labels, --test-images, --test-labels, --text, --text-files, --images, "
            "--cifar, --arrays, --inputs, --targets, --test-inputs, --test-targets or --documents, "
            "or a spec "
            "file with a dataset path");
}

TEST(UploadFlags, HelpIsGroupedAndSaysWhatFormatsAnOptionIsFor) {
  const Command* command = find_command("dataset upload");
  ASSERT_NE(command, nullptr);
  OptionSet options;
  command->options(options);
  GlobalOptions global;
  add_global_options(options, global);
  const std::string help = command_help(*command, options, 200);
  for (const char* line :
       {"\nWithout a spec file, the data is one of:\n  --csv FILE", "\n  --libsvm FILE",
        "\nHow the data is read [formats with the option]:\n",
        "what the target is: class or numeric [csv, ", "\n  --no-header",
        "the column to predict [csv, jsonl]\n", "\nEvery command also has -o, --server"}) {
    EXPECT_NE(help.find(line), std::string::npos) << line << " is not in\n" << help;
  }
}

}  // namespace
}  // namespace trainyard::cli
