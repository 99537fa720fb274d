// Spec files onto JobFile: each refusal with its exact line, column and sentence. A field that
// would be skipped, guessed or defaulted fails here.
#include "client/lib/spec_file.h"

#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "client/lib/dataset_upload.h"
#include "tests/client/spec_support.h"

namespace trainyard::client {
namespace {

using Lines = std::vector<std::string>;

TEST(SpecFile, ReadsACompleteSpec) {
  const auto spec = parse_spec_file(R"(
name: digits-1
dataset: {name: digits}
model:
  layers:
    - conv: {out_channels: 8, kernel_shape: 3, pads: [1, 1, 1, 1], bias: false}
      name: c1
    - relu:
    - sigmoid: {}
    - add:
      inputs: [c1, input]
    - gemm:
  loss: softmax_cross_entropy
recipe:
  epochs: 5
  seed: 18446744073709551615
  optimizer: {type: adamw, learning_rate: 1e-3, weight_decay: 0}
  schedule: {type: cosine, warmup_steps: 10}
  shuffle: false
resources: {device: cpu, threads: 2}
priority: -3
labels: {team: "7"}
)",
                                    "job.yaml", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const v1::JobSpec job = spec->job_spec();
  EXPECT_EQ(spec->file.name(), "digits-1");
  EXPECT_FALSE(spec->has_data());
  EXPECT_EQ(job.dataset().name(), "digits");
  ASSERT_EQ(job.model().layers_size(), 5);
  const auto& conv = job.model().layers(0).conv();
  EXPECT_EQ(conv.kernel_shape_size(), 1);
  EXPECT_EQ(conv.kernel_shape(0), 3);
  EXPECT_EQ(conv.pads_size(), 4);
  EXPECT_TRUE(conv.has_bias());
  EXPECT_FALSE(conv.bias());
  EXPECT_EQ(job.model().layers(1).op_case(), v1::Layer::kRelu);
  EXPECT_EQ(job.model().layers(2).op_case(), v1::Layer::kSigmoid);
  EXPECT_EQ(job.model().layers(3).inputs(1), "input");
  EXPECT_EQ(job.model().layers(4).op_case(), v1::Layer::kGemm);
  EXPECT_TRUE(job.model().loss().has_softmax_cross_entropy());
  EXPECT_EQ(job.recipe().seed(), UINT64_MAX);
  EXPECT_EQ(job.recipe().optimizer().type(), v1::Optimizer::ADAMW);
  EXPECT_DOUBLE_EQ(job.recipe().optimizer().learning_rate(), 1e-3);
  EXPECT_TRUE(job.recipe().optimizer().has_weight_decay());  // an explicit 0 is not the default
  EXPECT_FALSE(job.recipe().shuffle());
  EXPECT_EQ(job.resources().device(), v1::Resources::CPU);
  EXPECT_EQ(job.priority(), -3);
  EXPECT_EQ(job.labels().at("team"), "7");
}

TEST(SpecFile, ALossIsANameOrANameWithSettings) {
  const auto read = [](const std::string& loss) {
    return parse_spec_file("dataset: {name: d}\nmodel:\n  mlp:\n  target: input\n  loss: " + loss +
                               "\nrecipe: {epochs: 1, optimizer: {learning_rate: 0.1}}\n",
                           "job.yaml", "", {});
  };
  const auto name = read("huber");
  ASSERT_TRUE(name.ok()) << name.error().message;
  EXPECT_TRUE(name->file.model().loss().has_huber());
  EXPECT_EQ(name->file.model().target(), v1::ModelSpec::INPUT);
  const auto settings = read("{softmax_cross_entropy: {class_weights: [1, 2.5], ignore_index: 1}}");
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  const auto& loss = settings->file.model().loss().softmax_cross_entropy();
  EXPECT_EQ(loss.class_weights().list_value().values(1).number_value(), 2.5);
  EXPECT_EQ(loss.ignore_index(), 1);
  EXPECT_EQ(read("hubert").error().message,
            "job.yaml:5:9: model.loss: 'hubert' is not known, expected softmax_cross_entropy, "
            "binary_cross_entropy, mean_squared_error, mean_absolute_error, huber or "
            "kl_divergence; did you mean 'huber'?");
  EXPECT_NE(read("{huber: {dleta: 1}}").error().message.find("did you mean 'delta'?"),
            std::string::npos);
  EXPECT_NE(read("{huber: {}, mean_squared_error: {}}").error().message.find("only one of them"),
            std::string::npos);
}

// One field, several forms of it: which are right, the server knows.
TEST(SpecFile, AValueMayBeTextANumberOrNumbersWithNames) {
  const auto mlp = [](const std::string& embedding) {
    const auto spec =
        parse_spec_file(spec_with("{mlp: {embedding: " + embedding + "}}"), "job.yaml", "", {});
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return spec->job_spec().model().mlp().embedding();
  };
  EXPECT_EQ(mlp("auto").string_value(), "auto");
  EXPECT_EQ(mlp("8").number_value(), 8);
  EXPECT_EQ(mlp("{cut: 4, \"Color of stone\": 6}").struct_value().fields().at("cut").number_value(),
            4);
  EXPECT_EQ(problems_of(spec_with("{mlp: {embedding: {cut: {width: 4}}}}")).size(), 1u);
  const std::string loss = "{mlp: {}, loss: {softmax_cross_entropy: ";
  const auto spec =
      parse_spec_file(spec_with(loss + "{class_weights: balanced}}}"), "job.yaml", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->job_spec().model().loss().softmax_cross_entropy().class_weights().string_value(),
            "balanced");
  // What only stored specs hold.
  const auto stored = problems_of(spec_with(loss + "{class_weight_list: [1]}}}"));
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_NE(stored[0].find("did you mean 'class_weights'?"), std::string::npos) << stored[0];
}

TEST(SpecFile, ReadsTheSameFromJson) {
  const auto spec = parse_spec_file(
      R"({"dataset": {"name": "digits"}, "model": {"mlp": {"hidden": [512, 512], "dropout": 0.1}},
          "recipe": {"steps": 100, "optimizer": {"type": "sgd", "learning_rate": 0.1}}})",
      "job.json", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->file.model().mlp().hidden(1), 512);
  EXPECT_EQ(spec->file.recipe().steps(), 100);
}

TEST(SpecFile, UnknownFieldsNameLineColumnAndTheNearestName) {
  EXPECT_EQ(
      problems_of(spec_with("{lenet5: {}}", "\n  epochs: 1\n  optimiser: {learning_rate: 0.1}")),
      Lines{"job.yaml:5:3: recipe.optimiser: unknown field, did you mean 'optimizer'?"});
  EXPECT_EQ(problems_of(spec_with("{lenet5: {}}", "{epochs: 1, learning_rate: 0.1}")),
            Lines{"job.yaml:3:21: recipe.learning_rate: unknown field here, it belongs to "
                  "'recipe.optimizer'"});
  EXPECT_EQ(problems_of(spec_with("{lenet5: {x: 1}}")),
            Lines{"job.yaml:2:18: model.lenet5.x: unknown field, there are none here"});
  EXPECT_EQ(problems_of(spec_with("{layers: [{dense: {units: 5}}]}")),
            Lines{"job.yaml:2:19: model.layers[0].dense: unknown field, it is called 'gemm' here"});
  EXPECT_EQ(problems_of(spec_with() + "zzzzzzzz: 1\n"),
            Lines{"job.yaml:4:1: zzzzzzzz: unknown field, expected name, dataset, model, recipe, "
                  "resources, "
                  "priority or labels"});
  // Output-only and wire-only fields are unknown here like any other.
  EXPECT_EQ(problems_of(spec_with() + "state: queued\n").size(), 1u);
}

TEST(SpecFile, WrongTypesNameFieldValueAndWhatIsExpected) {
  const auto recipe = [](const std::string& fields) {
    return problems_of(
        spec_with("{lenet5: {}}", "{optimizer: {learning_rate: 0.1}, " + fields + "}"));
  };
  const std::string at = "job.yaml:3:51: ";  // of a value behind "epochs: "
  EXPECT_EQ(recipe("epochs: five"), Lines{at + "recipe.epochs: 'five', expected a whole number"});
  EXPECT_EQ(recipe("epochs: 1.5"), Lines{at + "recipe.epochs: '1.5', expected a whole number"});
  EXPECT_EQ(recipe("epochs: 010"),
            Lines{at + "recipe.epochs: '010', expected a whole number without leading zeros"});
  EXPECT_EQ(recipe("epochs: 0x10"), Lines{at + "recipe.epochs: '0x10', expected a whole number"});
  EXPECT_EQ(recipe("epochs: \"5\""),
            Lines{at + "recipe.epochs: '5' (text), expected a whole number"});
  EXPECT_EQ(recipe("epochs: [5]"), Lines{at + "recipe.epochs: a list, expected a whole number"});
  EXPECT_EQ(recipe("epochs: "), Lines{at + "recipe.epochs: nothing, expected a whole number"})
      << "null";
  EXPECT_EQ(recipe("epochs: 9223372036854775808"),
            Lines{at + "recipe.epochs: 9223372036854775808 is out of range, expected "
                       "-9223372036854775808..9223372036854775807"});
  EXPECT_EQ(recipe("seed: -1").size(), 1u);
  EXPECT_EQ(recipe("shuffle: yes")[0],
            "job.yaml:3:52: recipe.shuffle: 'yes', expected true or false");
  EXPECT_EQ(recipe("shuffle: \"true\"").size(), 1u);
  EXPECT_EQ(recipe("shuffle: 1").size(), 1u);
  EXPECT_TRUE(problems_of(spec_with("5"))[0].starts_with(
      "job.yaml:2:8: model: '5', expected fields such as mlp, lenet5, "));
  EXPECT_EQ(
      problems_of(spec_with("{layers: {relu: {}}}")),
      Lines{"job.yaml:2:17: model.layers: a group of fields, expected a list (- item) of layers"});
  EXPECT_EQ(problems_of(spec_with("{layers: [relu]}")),
            Lines{"job.yaml:2:18: model.layers[0]: 'relu' lacks its colon, write '- relu:'"});
}

TEST(SpecFile, NumbersAreFiniteAndWrittenInFull) {
  const auto rate = [](const std::string& value) {
    return problems_of(
        spec_with("{lenet5: {}}", "{epochs: 1, optimizer: {learning_rate: " + value + "}}"));
  };
  const std::string at = "job.yaml:3:48: recipe.optimizer.learning_rate: ";
  EXPECT_EQ(rate(".nan"), Lines{at + "'.nan', expected a finite number"});
  EXPECT_EQ(rate(".inf"), Lines{at + "'.inf', expected a finite number"});
  EXPECT_EQ(rate("-.Inf"), Lines{at + "'-.Inf', expected a finite number"});
  EXPECT_EQ(rate("NaN"), Lines{at + "'NaN', expected a finite number"});
  EXPECT_EQ(rate("1e400"), Lines{at + "1e400 is beyond what a 64-bit number can hold"});
  EXPECT_EQ(rate(".1"), Lines{at + "'.1', expected a number such as 0.1"});
  EXPECT_EQ(rate("0,1").size(), 1u);  // inside { } a comma begins the next field
  EXPECT_EQ(rate("1_000"), Lines{at + "'1_000', expected a number"});
  EXPECT_EQ(rate("1e-3"), Lines{});
  EXPECT_EQ(rate("-5"), Lines{}) << "ranges are the server's to judge";
}

TEST(SpecFile, EnumsListWhatIsAccepted) {
  EXPECT_EQ(problems_of(spec_with("{lenet5: {}}",
                                  "{epochs: 1, optimizer: {type: adamm, learning_rate: 1}}")),
            Lines{"job.yaml:3:39: recipe.optimizer.type: 'adamm' is not known, expected sgd, adam, "
                  "adamw, rmsprop, lion, adafactor or muon; did you mean 'adam'?"});
  EXPECT_EQ(problems_of(spec_with("{lenet5: {}}",
                                  "{optimizer: {learning_rate: 1}, epochs: 1, precision: fp8}")),
            Lines{"job.yaml:3:63: recipe.precision: 'fp8' is not known, expected fp32, bf16, tf32 "
                  "or fp16; did you mean 'fp32'?"});
  EXPECT_EQ(
      problems_of(spec_with() + "resources: {device: GPU}\n"),
      Lines{"job.yaml:4:21: resources.device: 'GPU' is not known, expected auto, cpu or gpu"});
  EXPECT_EQ(problems_of(spec_with() + "resources: {device: device_unspecified}\n").size(), 1u);
}

TEST(SpecFile, TextThatLooksLikeANumberWantsQuotes) {
  EXPECT_EQ(problems_of(spec_with() + "labels: {run: 5}\n"),
            Lines{"job.yaml:4:15: labels.run: '5', expected text; put it in quotes: \"5\""});
  EXPECT_EQ(problems_of(spec_with() + "labels: {run: true}\n").size(), 1u);
  EXPECT_EQ(problems_of(spec_with() + "labels: {run: 2026-11-21}\n"), Lines{});
}

TEST(SpecFile, AOneofIsGivenOnce) {
  EXPECT_EQ(problems_of(spec_with("{layers: [{relu: {}, tanh: {}}]}")),
            Lines{"job.yaml:2:29: model.layers[0].tanh: stands beside 'relu', only one of them can "
                  "be given "
                  "here"});
  EXPECT_EQ(problems_of(spec_with("{layers: [{name: a}]}")),
            Lines{"job.yaml:2:18: model.layers[0]: names no operation such as conv, gemm or relu"});
}

TEST(SpecFile, AnOnnxFileIsTheWholeModel) {
  EXPECT_EQ(problems_of(spec_with("{onnx: net.onnx, loss: huber}")), std::vector<std::string>{});
  for (const auto& [rival, name] : {std::pair{"lenet5: {}", "a preset"},
                                    {"layers: [{gemm: }]", "layers"},
                                    {"blocks: [{name: b, layers: [{gemm: }]}]", "blocks"}}) {
    EXPECT_EQ(problems_of(spec_with("{onnx: net.onnx, " + std::string(rival) + "}")),
              std::vector<std::string>{"job.yaml:2:1: model: has onnx and " + std::string(name) +
                                       ", expected one of them"});
  }
}

TEST(SpecFile, BlocksTakeValuesOfAnyType) {
  const auto spec = parse_spec_file(
      spec_with(
          "{blocks: [{name: b, parameters: [p], layers: [{relu: {}, bind: {x: p}}]}], layers: "
          "[{use: {block: b, repeat: 2, with: {i: 3, r: 0.5, t: true, s: tanh, q: \"5\", "
          "l: [3, 5]}}}]}"),
      "job.yaml", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const auto& use = spec->file.model().layers(0).use();
  EXPECT_EQ(use.repeat(), 2);
  EXPECT_EQ(use.with().at("i").number_value(), 3);
  EXPECT_EQ(use.with().at("r").number_value(), 0.5);
  EXPECT_TRUE(use.with().at("t").bool_value());
  EXPECT_EQ(use.with().at("s").string_value(), "tanh");
  EXPECT_EQ(use.with().at("q").string_value(), "5");
  EXPECT_EQ(use.with().at("l").list_value().values_size(), 2);
  EXPECT_EQ(spec->file.model().blocks(0).layers(0).bind().at("x"), "p");
  EXPECT_EQ(problems_of(spec_with("{layers: [{use: {block: b, with: {p: {a: 1}}}}]}")).size(), 1u);
  EXPECT_EQ(problems_of(spec_with("{blocks: [{name: b, layers: [{name: a}]}], layers: [{relu: }]}"))
                .size(),
            1u);
}

TEST(SpecFile, RequiredPartsAreNamed) {
  const Lines lines = problems_of("name: x\n");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0],
            "job.yaml:1:1: dataset: required and not there, for example 'dataset: digits'");
  EXPECT_EQ(problems_of("dataset:\nmodel: {lenet5: }\nrecipe:\n").size(), 2u);  // named, but empty
}

TEST(SpecFile, ADatasetIsANameOrFields) {
  const auto read = [](const std::string& dataset) {
    return parse_spec_file(
        spec_with("{lenet5: {}}", "{epochs: 1, optimizer: {learning_rate: 1}}", dataset),
        "job.yaml", "", {});
  };
  for (const char* dataset : {"digits@2", "{name: digits@2}", "\"digits@2\""}) {
    const auto spec = read(dataset);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->job_spec().dataset().name(), "digits@2");
    EXPECT_FALSE(spec->has_data());
  }
  const auto refused = [](const std::string& dataset) {
    return problems_of(
        spec_with("{lenet5: {}}", "{epochs: 1, optimizer: {learning_rate: 1}}", dataset));
  };
  EXPECT_EQ(refused("5"),
            Lines{"job.yaml:1:10: dataset: '5', expected text; put it in quotes: \"5\""});
  EXPECT_EQ(refused("[digits]").size(), 1u);
  EXPECT_EQ(refused("{name: digits@2, path: a.csv, csv: {target: y}}"),
            Lines{"job.yaml:1:17: dataset.name: 'digits@2': new content gets its version from the "
                  "server, expected a name without @"});
}

TEST(SpecFile, DatasetFieldsBelongTogether) {
  const auto dataset = [](const std::string& text) {
    return problems_of(
        spec_with("{lenet5: {}}", "{epochs: 1, optimizer: {learning_rate: 1}}", text));
  };
  EXPECT_EQ(dataset("{path: a.csv, csv: {target: y}}"), Lines{});
  const Lines hint = dataset("{path: a.csv}");
  ASSERT_EQ(hint.size(), 1u);
  EXPECT_TRUE(
      hint[0].starts_with("job.yaml:1:1: dataset.csv.target: required with path: the "
                          "column to learn (or jsonl: {target: ...} for JSON lines, "));
  EXPECT_TRUE(
      hint[0].ends_with("text: {} for one text, text_files: {} or images: {} for a folder "
                        "or archive, cifar: {}, arrays: {} for NPZ and safetensors)"));
  EXPECT_EQ(dataset("{path: a, images: {size: [4, 4], resize: pad}}"), Lines{});
  EXPECT_EQ(dataset("{path: a, test_path: b, images: {}}"), Lines{});
  EXPECT_EQ(dataset("{path: a, cifar: {}}"), Lines{});
  EXPECT_EQ(dataset("{images: {}}"), Lines{"job.yaml:1:1: dataset.path: required with images: the "
                                           "folder or archive that holds them"});
  EXPECT_EQ(dataset("{path: a, images: {}, cifar: {}}"),
            Lines{"job.yaml:1:1: dataset: has images and cifar, expected one of them"});
  EXPECT_EQ(dataset("{path: a, test_path: b, cifar: {}}").size(), 1u);
  EXPECT_EQ(dataset("{csv: {target: y}}"),
            Lines{"job.yaml:1:1: dataset.path: required with csv: the file that holds the rows"});
  EXPECT_EQ(dataset("{train_images: a}"),
            Lines{"job.yaml:1:1: dataset.train_labels: required for IDX files"});
  EXPECT_EQ(dataset("{train_images: a, train_labels: b, test_images: c}"),
            Lines{"job.yaml:1:1: dataset.test_labels: required: a test set is images and labels"});
  EXPECT_EQ(dataset("{path: a.csv, train_images: b}").size(), 1u);
  EXPECT_EQ(dataset("{path: a.jsonl, jsonl: {target: y, date: when}}"), Lines{});
  EXPECT_EQ(dataset("{path: a, test_path: b, text_files: {}}"), Lines{});
  EXPECT_EQ(dataset("{path: a, text: {field: body}}"), Lines{});
  EXPECT_EQ(dataset("{path: a, jsonl: {}}"),
            Lines{"job.yaml:1:20: dataset.jsonl.target: the member to learn"});
  EXPECT_EQ(dataset("{jsonl: {target: y}}"),
            Lines{"job.yaml:1:1: dataset.path: required with jsonl: the file that holds the rows"});
  EXPECT_EQ(
      dataset("{text_files: {}}"),
      Lines{"job.yaml:1:1: dataset.path: required with text_files: the folder or archive that "
            "holds them"});
  EXPECT_EQ(dataset("{path: a.npz, arrays: {inputs: x, targets: y}}"), Lines{});
  EXPECT_EQ(dataset("{path: a.npz, test_path: b.npz, arrays: {}}"), Lines{});
  EXPECT_EQ(dataset("{inputs: x.npy, targets: y.npy, arrays: {test_share: 0.2}}"), Lines{});
  EXPECT_EQ(dataset("{arrays: {}}"),
            Lines{"job.yaml:1:1: dataset.path: required with arrays: a NPZ or safetensors file; or "
                  "name NPY files by inputs and targets"});
  EXPECT_EQ(dataset("{inputs: x.npy}"),
            Lines{"job.yaml:1:1: dataset.targets: required for NPY files"});
  EXPECT_EQ(dataset("{inputs: x, targets: y, test_inputs: z}"),
            Lines{"job.yaml:1:1: dataset.test_targets: required: a test set is inputs and "
                  "targets"});
  EXPECT_EQ(dataset("{inputs: x, targets: y, path: z}").size(), 1u);
  EXPECT_EQ(dataset("{inputs: x, targets: y, train_images: z}").size(), 1u);
  EXPECT_EQ(dataset("{}").size(), 1u);
  EXPECT_EQ(dataset("{path: a.csv, csv: {target: y, delimiter: \"::\"}}"),
            Lines{"job.yaml:1:52: dataset.csv.delimiter: '::', expected one character such as "
                  "\",\" or \";\""});
}

TEST(SpecFile, TabsSeparateATsvUnlessTheSpecSaysOtherwise) {
  const auto delimiter = [](const std::string& dataset) {
    const auto spec =
        parse_spec_file(spec_with("{lenet5: {}}", "{epochs: 1, optimizer: {learning_rate: 1}}",
                                  "{" + dataset + "}"),
                        "job.yaml", "", {});
    EXPECT_TRUE(spec.ok()) << spec.error().message;
    return dataset_spec(spec->file.dataset()).csv().delimiter();
  };
  EXPECT_EQ(delimiter("path: a.csv, csv: {target: y}"), "");
  EXPECT_EQ(delimiter("path: a.csv, csv: {target: y, delimiter: \"\\t\"}"), "\t");
  EXPECT_EQ(delimiter("path: a.tsv, csv: {target: y}"), "\t");
  EXPECT_EQ(delimiter("path: A.TSV.gz, csv: {target: y}"), "\t");
  EXPECT_EQ(delimiter("path: a.tsv, csv: {target: y, delimiter: \"|\"}"), "|");
}

TEST(SpecFile, AllProblemsComeAtOnceUpToSixteen) {
  std::string text = "dataset: {name: d}\nmodel: {mlp: {hidden: [a, b]}}\nrecipe:\n";
  for (int i = 0; i < 20; ++i) text += "  wrong" + std::to_string(i) + ": 1\n";
  const auto spec = parse_spec_file(text, "job.yaml", "", {});
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().violations.size(), 16u);
  EXPECT_EQ(spec.error().message, "job.yaml has 22 problems");
  EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
}

TEST(SpecFile, SetUsesTheSameRules) {
  const std::string text = spec_with();
  const auto set = parse_spec_file(
      text, "job.yaml", "",
      std::vector<std::string>{"recipe.optimizer.learning_rate=0.5",
                               "model.lenet5=", "model.mlp.hidden=[64, 32]",
                               "labels.note=two words", "recipe.epochs=null", "recipe.steps=7"});
  ASSERT_TRUE(set.ok()) << set.error().message;
  EXPECT_DOUBLE_EQ(set->file.recipe().optimizer().learning_rate(), 0.5);
  EXPECT_FALSE(set->file.model().has_lenet5());
  EXPECT_EQ(set->file.model().mlp().hidden(0), 64);
  EXPECT_EQ(set->file.labels().at("note"), "two words");
  EXPECT_FALSE(set->file.recipe().has_epochs());
  EXPECT_EQ(problems_of(text, {"recipe.epoch=3"}),
            Lines{"--set recipe.epoch: recipe.epoch: unknown field, did you mean 'epochs'?"});
  EXPECT_EQ(problems_of(text, {"recipe.epochs=many"}),
            Lines{"--set recipe.epochs: recipe.epochs: 'many', expected a whole number"});
}

TEST(SpecFile, TheServersRefusalGetsThePlaceInTheFile) {
  const auto spec =
      parse_spec_file(spec_with("{lenet5: {}}", "\n  epochs: 0\n  optimizer: {learning_rate: 0}"),
                      "job.yaml", "", {});
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  const Error one = spec->with_positions(field_error("FIELD_OUT_OF_RANGE", "spec.recipe.epochs",
                                                     "0 is out of range, expected 1..1000000"));
  EXPECT_EQ(one.message, "job.yaml:4:11: recipe.epochs: 0 is out of range, expected 1..1000000");
  EXPECT_EQ(one.reason, "FIELD_OUT_OF_RANGE");
}

// The reader sets fields by their C++ type; this keeps job_spec.proto within the types that it
// handles.
TEST(SpecFile, EveryFieldHasATypeThatTheReaderKnows) {
  namespace pb = google::protobuf;
  std::set<const pb::Descriptor*> seen;
  const std::function<void(const pb::Descriptor*)> check = [&](const pb::Descriptor* type) {
    if (!seen.insert(type).second) return;
    for (int i = 0; i < type->field_count(); ++i) {
      const pb::FieldDescriptor* field = type->field(i);
      EXPECT_NE(field->cpp_type(), pb::FieldDescriptor::CPPTYPE_FLOAT) << field->full_name();
      EXPECT_NE(field->cpp_type(), pb::FieldDescriptor::CPPTYPE_UINT32) << field->full_name();
      EXPECT_NE(field->type(), pb::FieldDescriptor::TYPE_BYTES) << field->full_name();
      if (field->message_type() != nullptr) check(field->message_type());
    }
  };
  check(v1::JobFile::descriptor());
  EXPECT_GT(seen.size(), 10u);
}

}  // namespace
}  // namespace trainyard::client
