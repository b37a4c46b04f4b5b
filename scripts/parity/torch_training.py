"""The training loop of a configuration in PyTorch: the transformers model, AdamW, Muon. Needs torch and transformers."""

import fnmatch
import math

import torch
import transformers

from token_data import MASKED, Batches, rate_factor

POLAR_EXPRESS = [
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
]
KELLER = (3.4445, -4.7750, 2.0315)
# Rows of (a, b, c); beyond a table its last row repeats. Polar Express is used at x / 1.05, but for its last row.
COEFFICIENTS = {
    "simple": [KELLER],
    "quintic": [
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ],
    "polar_express": [(a / 1.05, b / 1.05**3, c / 1.05**5) for a, b, c in POLAR_EXPRESS] + [(1.875, -1.25, 0.375)],
    "dsv4": [KELLER] * 8 + [(2.0, -1.5, 0.5)] * 2,
}


def newton_schulz(matrix, table, steps, dtype):
    """Orthogonalises [out, in]; the norm is taken in double before any cast, zero gives zero."""
    norm = matrix.double().norm().item()
    if norm == 0.0:
        return torch.zeros_like(matrix)
    tall = matrix.shape[0] > matrix.shape[1]
    x = (matrix.T if tall else matrix) / norm
    x = x.to(dtype)
    for k in range(steps):
        a, b, c = table[min(k, len(table) - 1)]
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    x = x.to(matrix.dtype)
    return x.T if tall else x


class Muon:
    """Muon on row blocks of (out, in) matrices; `matrices` are (parameter, stored transposed, number of blocks)."""

    def __init__(self, matrices, options):
        self.matrices, self.options = matrices, options
        self.momenta = [torch.zeros_like(parameter) for parameter, _, _ in matrices]

    def _scale(self, rows, columns):
        mode = self.options["scale_mode"]
        scale = {
            "match_rms_adamw": 0.2 * math.sqrt(max(rows, columns)),
            "original": math.sqrt(max(1.0, rows / columns)),
            "unit_rms_norm": math.sqrt(rows / columns),
            "spectral": math.sqrt(max(rows, columns)),
        }[mode]
        return scale * self.options["extra_scale_factor"]

    def step(self, rate, weight_decay):
        o = self.options
        beta = o["momentum"]
        share = 1.0 - beta if o["momentum_form"] == "ema" else 1.0
        table, dtype = COEFFICIENTS[o["coefficient_type"]], getattr(torch, o["ns_dtype"])
        for (parameter, transposed, blocks), momentum in zip(self.matrices, self.momenta):
            momentum.mul_(beta).add_(parameter.grad, alpha=share)
            update = share * parameter.grad + beta * momentum if o["nesterov"] else momentum
            update = update.T if transposed else update
            directions = []
            for block in update.chunk(blocks):
                direction = newton_schulz(block, table, o["num_ns_steps"], dtype)
                directions.append(self._scale(*block.shape) * direction)
            direction = torch.cat(directions)
            parameter.mul_(1.0 - rate * weight_decay)
            parameter.sub_(rate * (direction.T if transposed else direction))


def torch_muon(matrices, options):
    """torch.optim.Muon if this PyTorch has it and it computes what the configuration asks for, else None."""
    adjust = {"original": "original", "match_rms_adamw": "match_rms_adamw"}.get(options["scale_mode"])
    plain = all(not transposed and blocks == 1 for _, transposed, blocks in matrices)
    same = options["momentum_form"] == "ema" and options["extra_scale_factor"] == 1 and options["ns_dtype"] == "bfloat16"
    if not hasattr(torch.optim, "Muon") or adjust is None or not plain or not same:
        return None
    if options["coefficient_type"] != "simple":
        return None  # its table has one row
    return torch.optim.Muon(
        [parameter for parameter, _, _ in matrices],
        lr=1.0,
        weight_decay=0.0,
        momentum=options["momentum"],
        nesterov=options["nesterov"],
        ns_coefficients=KELLER,
        eps=1e-30,
        ns_steps=options["num_ns_steps"],
        adjust_lr_fn=adjust,
    )


class Optimizers:
    """What the configuration's optimizer section says, over the parameters of a transformers model."""

    def __init__(self, model, config, use_torch_muon):
        section = config["optimizer"]
        self.matrix, self.element = section["matrix"], section["element"]
        matrices, decayed, vectors = [], [], []
        for name, parameter in model.named_parameters():
            if self._on_matrix_optimizer(name, parameter):
                conv1d = isinstance(model.get_submodule(name.rpartition(".")[0]), transformers.pytorch_utils.Conv1D)
                fused = "c_attn" in name and self.matrix["split_qkv"]
                matrices.append((parameter, conv1d, 3 if fused else 1))
            elif parameter.ndim < 2:
                vectors.append(parameter)
            else:
                decayed.append(parameter)
        self.torch_muon = torch_muon(matrices, self.matrix) if matrices and use_torch_muon else None
        self.muon = Muon(matrices, self.matrix) if matrices and self.torch_muon is None else None
        decay = self.element["weight_decay"]
        groups = [
            {"params": decayed, "weight_decay": decay},
            {"params": vectors, "weight_decay": decay if self.element["decay_vectors"] else 0.0},
        ]
        self.adamw = torch.optim.AdamW(
            groups, lr=self.element["lr"], betas=tuple(self.element["betas"]), eps=self.element["eps"]
        )

    def _on_matrix_optimizer(self, name, parameter):
        if self.matrix["name"] == "none" or parameter.ndim != 2 or min(parameter.shape) < 2:
            return False
        in_block = ".h." in name or ".layers." in name
        return in_block and not any(fnmatch.fnmatchcase(name, pattern) for pattern in self.matrix["exclude"])

    def describe(self):
        if self.torch_muon is not None:
            return "torch.optim.AdamW and torch.optim.Muon"
        return "torch.optim.AdamW" + (" and Muon of this script" if self.muon is not None else "")

    @torch.no_grad()
    def step(self, factor):
        for group in self.adamw.param_groups:
            group["lr"] = self.element["lr"] * factor
        self.adamw.step()
        rate = self.matrix.get("lr", 0.0) * factor
        if self.muon is not None:
            self.muon.step(rate, self.matrix["weight_decay"])
        if self.torch_muon is not None:
            for group in self.torch_muon.param_groups:
                group["lr"], group["weight_decay"] = rate, self.matrix["weight_decay"]
            self.torch_muon.step()


def train(config, weights, steps, use_torch_muon, report):
    """Losses of `steps` steps from the Hugging Face directory `weights`; report(text) takes lines for people."""
    dtype = getattr(torch, config["precision"]["param_dtype"])
    if dtype != torch.float32:
        report(f"precision.param_dtype = {dtype}: PyTorch trains in float32, so losses agree to bfloat16's precision only")
    model = transformers.AutoModelForCausalLM.from_pretrained(weights, attn_implementation="eager")
    model = model.float().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for parameter_name, parameter in model.named_parameters():
        frozen = config["train"].get("frozen", [])
        parameter.requires_grad_(not any(fnmatch.fnmatchcase(parameter_name, pattern) for pattern in frozen))
    optimizers = Optimizers(model, config, use_torch_muon)
    report(f"PyTorch {torch.__version__}, transformers {transformers.__version__}: {optimizers.describe()}")
    batches, z_loss, limit = Batches(config), config["train"].get("z_loss", 0.0), config["optimizer"]["clip_grad"]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    losses = []
    for step in range(1, steps + 1):
        total, count = 0.0, 0
        for sequences in batches.step(step):
            inputs = torch.tensor([inputs for inputs, _ in sequences])
            targets = torch.tensor([targets for _, targets in sequences])
            logits = model(inputs).logits.float()
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=MASKED, reduction="sum"
            )
            total, count = total + loss.item(), count + int((targets != MASKED).sum())
            if z_loss > 0.0:
                log_z = torch.logsumexp(logits, -1)
                loss = loss + z_loss * (log_z**2)[targets != MASKED].sum()
            loss.backward()
        # Gradients are sums until here: micro-batches with fewer targets weigh less.
        for parameter in trained:
            parameter.grad.div_(count)
        norm = math.sqrt(sum(parameter.grad.double().pow(2).sum().item() for parameter in trained))
        if 0.0 < limit < norm:
            for parameter in trained:
                parameter.grad.mul_(limit / norm)
        optimizers.step(rate_factor(config, step))
        for parameter in trained:
            parameter.grad = None
        losses.append(total / count)
    return losses
