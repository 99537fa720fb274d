// trainyard dataset preview: draws a PNG with a spec's images next to their augmented versions, or
// shows the tokens of its documents.
#include <memory>
#include <nlohmann/json.hpp>

#include "client/cli/command.h"
#include "client/cli/job_file.h"
#include "client/cli/local_spec.h"
#include "client/cli/output_file.h"
#include "client/cli/preview_documents.h"
#include "client/cli/temporary_folder.h"
#include "src/base/files.h"
#include "src/data/load/contact_sheet.h"
#include "src/data/load/split.h"
#include "src/job/augmentation.h"
#include "src/planning/recipe_check.h"
#include "src/planning/split_check.h"

namespace trainyard::cli {
namespace {

struct PreviewOptions {
  std::string spec;
  std::vector<std::string> sets;
  std::string out = "preview.png";
  bool overwrite = false;
  SheetOptions sheet;
  int64_t rows = 2;  // of documents
};

Result<int> run_preview(Session& session, const PreviewOptions& options) {
  TemporaryFolder temporary;
  ASSIGN_OR_RETURN(client::SpecFile spec, read_job_spec(options.spec, options.sets));
  if (Status s = import_models(session, temporary, spec, WeightsNeed::kShapes); !s.ok()) {
    return std::move(s).error();
  }
  ASSIGN_OR_RETURN(const EngineSpec engine, local_engine(spec, "dataset preview"));
  const bool tokens = spec.file.dataset().has_documents();
  if (!tokens) {  // told before the data is read
    if (Status s = check_output_file(options.out, options.overwrite); !s.ok()) {
      return std::move(s).error();
    }
  }
  const std::filesystem::path folder = temporary.path() / "dataset";
  ASSIGN_OR_RETURN(const DatasetSchema schema, read_local_data(spec, folder));
  Violations violations;
  check_augmentation(engine.recipe.augmentation, schema, violations);
  check_normalize(engine.recipe, schema, nullptr, violations);
  check_split(engine.recipe, schema, violations);
  if (!violations.empty()) return spec.with_positions(violations.to_error());
  ASSIGN_OR_RETURN(Dataset data, Dataset::open(folder, false));
  if (tokens) return preview_documents(session, data, engine.recipe, options.rows);
  const Recipe& recipe = engine.recipe;
  Augmenter augmenter;
  if (!recipe.augmentation.empty()) {  // fit on the same rows as in the job
    const Split split = split_dataset(schema, data.train(), 0, recipe.split_rule());
    augmenter = make_augmenter(recipe.augmentation, schema,
                               fit_preprocessing(schema, data.train(), split.train,
                                                 {.pixels = find_pixel_scale(recipe.normalize)}));
  }
  const Mixer mixer = make_mixer(recipe.augmentation, schema);
  SheetOptions sheet_options = options.sheet;
  sheet_options.seed = recipe.seed;
  ASSIGN_OR_RETURN(const Sheet sheet, make_sheet(data, augmenter, mixer, sheet_options));
  if (Status s = replace_file(user_files(), options.out, encode_png(sheet)); !s.ok()) {
    return std::move(s).error();
  }
  if (session.machine()) {
    nlohmann::ordered_json lines = nlohmann::ordered_json::array();
    for (const Sheet::Line& line : sheet.lines) {
      lines.push_back({{"row", std::to_string(line.row)}, {"label", line.label}});
    }
    session.out().line(nlohmann::ordered_json({{"file", options.out}, {"lines", std::move(lines)}})
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return static_cast<int>(client::kExitOk);
  }
  session.out().line(options.out);
  Table table({{"LINE", true}, {"ROW", true}, {"LABEL"}});
  for (size_t i = 0; i < sheet.lines.size(); ++i) {
    table.add({std::to_string(i + 1), grouped(sheet.lines[i].row + 1), sheet.lines[i].label});
  }
  session.err().write(table.render(session.err().colour()));
  if (recipe.augmentation.empty()) {
    session.hint("  the recipe has no augmentation: originals only");
  }
  if (!mixer.empty()) {
    session.hint("  mixed with the line above; a job mixes the images of a batch");
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command dataset_preview_command() {
  auto o = std::make_shared<PreviewOptions>();
  return {
      "dataset preview",
      "Draw a spec's images and their augmentation as a PNG file, or show its documents' tokens",
      {"trainyard dataset preview examples/cifar10_resnet18.yaml --out sheet.png",
       "trainyard dataset preview spec.yaml --images 16 --versions 11 --epoch 3",
       "trainyard dataset preview chats.yaml --rows 1"},
      "Each line shows an image as it is stored and the result of the spec's augmentation in "
      "successive epochs,\nexactly as a job of this spec would see it. Reads the files that "
      "the spec names, without a server. mixup and\ncutmix mix an image with that of the line "
      "above, where a job mixes it with another image of its batch. Of dataset.documents,\nit "
      "shows the tokens of the first rows, and which of them count in the loss.",
      [o](OptionSet& options) {
        options.positional("SPEC", o->spec, "a job's spec file; its dataset needs a path");
        options.texts("--set", "PATH=VALUE", o->sets,
                      "change a field of the spec; may be given several times");
        options.text("--out", "FILE", o->out, "the PNG file, default preview.png");
        add_overwrite_option(options, o->overwrite);
        options.integer("--images", "N", o->sheet.images,
                        "number of images, spread evenly over the training rows; default 8");
        options.integer("--versions", "N", o->sheet.versions,
                        "augmented versions of each image; default 7");
        options.integer("--epoch", "E", o->sheet.epoch, "epoch of the first version; default 0");
        options.integer("--rows", "N", o->rows, "number of rows of documents; default 2");
      },
      [o](Session& session) { return run_preview(session, *o); }};
}

}  // namespace trainyard::cli
