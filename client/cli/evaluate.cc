// trainyard model evaluate: evaluates a trained model on a dataset, on the server.
#include <algorithm>
#include <map>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/job_view.h"
#include "src/data/table/column_match.h"

namespace trainyard::cli {
namespace {

constexpr client::Rpc<v1::EvaluateRequest, v1::EvaluateResponse> kEvaluate{
    "ModelService/Evaluate", client::Repeat::kSome, client::kHourMs};

constexpr int kClassesScored = 40;

struct EvaluateOptions {
  std::string model;
  std::string dataset;
  std::string rows;
  std::vector<std::string> metrics;
};

std::string share(double value) {
  char text[16];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

std::string render(const v1::EvaluateResponse& answer, bool colour) {
  Table metrics({{"METRIC"}, {"VALUE", true}});
  for (const auto& [name, value] :
       std::map<std::string, double>(answer.metrics().begin(), answer.metrics().end())) {
    metrics.add({name, human_number(value)});
  }
  std::string out = metrics.render(colour);
  if (answer.classes_size() > 0) {
    // If there are many classes, only the worst are shown, sorted by F1; few keep their order.
    std::vector<const v1::EvaluateResponse::ClassFigures*> classes;
    for (const auto& figures : answer.classes()) classes.push_back(&figures);
    const bool cut = answer.classes_size() > kClassesScored;
    if (cut) {
      std::ranges::stable_sort(classes, {}, [](const auto* c) { return c->f1(); });
      classes.resize(kClassesScored);
    }
    Table table({{"CLASS"}, {"ROWS", true}, {"PRECISION", true}, {"RECALL", true}, {"F1", true}});
    for (const auto* c : classes) {
      table.add({c->label(), grouped(c->row_count()), share(c->precision()), share(c->recall()),
                 share(c->f1())});
    }
    out += "\n" + table.render(colour);
    if (cut) {
      out += "the " + std::to_string(kClassesScored) + " with the lowest F1 of " +
             std::to_string(answer.classes_size()) + "; -o json has all\n";
    }
  }
  if (answer.has_confusion()) out += "\n" + render_confusion(answer.confusion(), colour);
  return out;
}

/// Returns a dataset's name without its version.
std::string_view without_version(std::string_view name) { return name.substr(0, name.find('@')); }

/// Warns if the rows are those that the model was trained on, whose metrics are too good.
void note_training_rows(Session& session, client::Client& server,
                        const v1::EvaluateRequest& request, const v1::EvaluateResponse& answer) {
  if (answer.rows() != v1::EvaluateRequest::TRAIN) return;
  const Result<v1::Model> model = server.call(client::rpc::kGetModel, request.name());
  if (!model.ok() || without_version(model->dataset()) != without_version(request.dataset())) {
    return;
  }
  session.err().line(
      "warning: the model was trained on these rows, so it does better on them than on new ones; a "
      "dataset with a test set (test_share), or another dataset, shows what it has learned");
}

Result<int> run_evaluate(Session& session, const EvaluateOptions& options) {
  v1::EvaluateRequest request;
  ASSIGN_OR_RETURN(*request.mutable_name(), session.full_name("models", options.model));
  ASSIGN_OR_RETURN(*request.mutable_dataset(), session.full_name("datasets", options.dataset));
  if (options.rows == "test") request.set_rows(v1::EvaluateRequest::TEST);
  if (options.rows == "train") request.set_rows(v1::EvaluateRequest::TRAIN);
  request.mutable_metrics()->Add(options.metrics.begin(), options.metrics.end());
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::EvaluateResponse answer, server->call(kEvaluate, request));
  session.show(answer, [&] { return render(answer, session.out().colour()); }, {});
  note_training_rows(session, *server, request, answer);
  session.hint("  on " + grouped(answer.row_count()) +
               (answer.rows() == v1::EvaluateRequest::TEST ? " test rows" : " training rows"));
  if (answer.ignored_columns_size() > 0) {
    const std::vector<std::string> names(answer.ignored_columns().begin(),
                                         answer.ignored_columns().end());
    session.err().line("note: ignored, because the model was trained without: " +
                       list_columns(names));
  }
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command model_evaluate_command() {
  auto o = std::make_shared<EvaluateOptions>();
  return {"model evaluate",
          "Evaluate a trained model on a dataset",
          {"trainyard model evaluate digits-1 digits", "trainyard model evaluate digits-1 digits@2",
           "trainyard model evaluate news-1 news-of-may --metric top_2_accuracy -o json"},
          "The dataset need not be the one that the model was trained on: columns, categories and "
          "classes are matched\nby name. For a model that predicts classes, prints metrics per "
          "class and the confusion matrix.",
          [o](OptionSet& options) {
            options.positional("MODEL", o->model, "the model's name, which is its job's");
            options.positional("DATASET", o->dataset,
                               "a dataset on the server; without @VERSION the newest version");
            options.text("--rows", "PART", o->rows,
                         "test or train; default: the test set if there is one", {"test", "train"});
            options.texts("--metric", "NAME", o->metrics,
                          "an additional metric, as in a recipe; may be given several times");
          },
          [o](Session& session) { return run_evaluate(session, *o); }};
}

}  // namespace trainyard::cli
