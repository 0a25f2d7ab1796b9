use std::fmt;

use thiserror::Error;

use super::window::DIFFERENCES;

/// The number of models of shapes: the paper's eight, frozen, and one more in the trainable layer.
pub(crate) const FEATURES: usize = SHAPES + 1;

/// The number of the paper's shapes.
pub(crate) const SHAPES: usize = 8;

/// Weights of one model of a shape: four, four into the bend, one after it.
const OF_A_FEATURE: usize = 2 * DIFFERENCES + 1;

/// The number of all weights.
pub const PARAMETERS: usize = FEATURES * OF_A_FEATURE + FEATURES;

/// The number of weights in the layer on top: one more model, and a weight for each model.
pub const TRAINABLE: usize = OF_A_FEATURE + FEATURES;

/// The version of the weights' file. A change of the layout or of the meaning of a weight changes
/// it.
pub const FORMAT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"SKDELPHI";

/// Magic, version, number of weights, seed.
const HEADER_BYTES: usize = 24;

/// The length of the weights' file.
const FILE_BYTES: usize = HEADER_BYTES + 4 * PARAMETERS;

/// Predicts the next of four normalised differences, from training on the shapes.
///
/// The file is little-endian: 8 bytes `SKDELPHI`, `u32` version, `u32` number of weights, `u64`
/// seed of the training, and the weights as `f32`: `line` for each model, `bend` for each,
/// `height`, `head`.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    pub(crate) seed: u64,
    /// The weights of the differences themselves: `line[difference][model]`.
    pub(crate) line: [[f32; FEATURES]; DIFFERENCES],
    /// The weights of the input of each model's bend.
    pub(crate) bend: [[f32; FEATURES]; DIFFERENCES],
    /// The weight of each model's bend.
    pub(crate) height: [f32; FEATURES],
    /// The weights of the models in the trained layer.
    pub(crate) head: [f32; FEATURES],
}

/// The reason why bytes are not a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    /// The length is wrong.
    #[error("the file does not have the {FILE_BYTES} bytes of Delphi's weights")]
    Length,
    /// The magic is missing.
    #[error("the file does not begin with `SKDELPHI`, so it does not hold weights of Delphi")]
    Magic,
    /// The version is not supported.
    #[error("the weights have another version; this program reads version {FORMAT_VERSION}")]
    Version,
    /// A weight is infinite or NaN.
    #[error("a weight is not finite")]
    Weight,
}

impl Model {
    /// Returns the weights that are part of this program.
    #[inline]
    pub fn built_in() -> &'static Self {
        const BUILT_IN: Model = match Model::from_bytes(include_bytes!("weights.bin")) {
            Ok(model) => model,
            Err(_) => panic!("weights.bin is not a model of this version: `skopos delphi train`"),
        };
        static MODEL: Model = BUILT_IN;
        &MODEL
    }

    /// Returns the seed of the training.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Reads a weights' file.
    ///
    /// # Errors
    /// Returns a [`ModelError`] if the bytes are not a weights' file.
    //
    // This is `const`, so that the compiler checks the built-in weights. Hence the loops.
    pub const fn from_bytes(bytes: &[u8]) -> Result<Self, ModelError> {
        if bytes.len() != FILE_BYTES {
            return Err(ModelError::Length);
        }
        let mut at = 0;
        while at < MAGIC.len() {
            if bytes[at] != MAGIC[at] {
                return Err(ModelError::Magic);
            }
            at += 1;
        }
        if word(bytes, 8) != FORMAT_VERSION || word(bytes, 12) != PARAMETERS as u32 {
            return Err(ModelError::Version);
        }
        let seed = word(bytes, 16) as u64 | (word(bytes, 20) as u64) << 32;
        let mut weights = [0.0; PARAMETERS];
        let mut i = 0;
        while i < PARAMETERS {
            weights[i] = f32::from_bits(word(bytes, HEADER_BYTES + 4 * i));
            if !weights[i].is_finite() {
                return Err(ModelError::Weight);
            }
            i += 1;
        }
        Ok(Self::of_weights(seed, &weights))
    }

    /// Returns the weights' file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT_VERSION.to_le_bytes());
        bytes.extend((PARAMETERS as u32).to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        let across = |of: &[[f32; FEATURES]; DIFFERENCES]| {
            let of = *of;
            (0..FEATURES).flat_map(move |model| of.map(|weights| weights[model]))
        };
        let weights = across(&self.line).chain(across(&self.bend));
        bytes.extend(weights.chain(self.height).chain(self.head).flat_map(f32::to_le_bytes));
        bytes
    }

    const fn of_weights(seed: u64, weights: &[f32; PARAMETERS]) -> Self {
        let mut line = [[0.0; FEATURES]; DIFFERENCES];
        let mut bend = line;
        let (mut height, mut head) = ([0.0; FEATURES], [0.0; FEATURES]);
        let mut model = 0;
        while model < FEATURES {
            let mut d = 0;
            while d < DIFFERENCES {
                line[d][model] = weights[model * DIFFERENCES + d];
                bend[d][model] = weights[(FEATURES + model) * DIFFERENCES + d];
                d += 1;
            }
            height[model] = weights[2 * FEATURES * DIFFERENCES + model];
            head[model] = weights[2 * FEATURES * DIFFERENCES + FEATURES + model];
            model += 1;
        }
        Self { seed, line, bend, height, head }
    }

    /// Returns the next difference as each model predicts it.
    #[inline]
    pub(crate) fn features(&self, differences: &[f32; DIFFERENCES]) -> [f32; FEATURES] {
        let mut line = [0.0; FEATURES];
        let mut bend = [0.0; FEATURES];
        for (d, difference) in differences.iter().enumerate() {
            for model in 0..FEATURES {
                line[model] += self.line[d][model] * difference;
                bend[model] += self.bend[d][model] * difference;
            }
        }
        for model in 0..FEATURES {
            line[model] += self.height[model] * soft(bend[model]);
        }
        line
    }

    /// Returns the prediction of the trained layer from those of the models.
    #[inline]
    pub(crate) fn stack(&self, features: &[f32; FEATURES]) -> f32 {
        self.head.iter().zip(features).map(|(weight, feature)| weight * feature).sum()
    }
}

/// The bend: steep at zero, flat far out, odd, and exact on every machine, unlike `tanh`.
#[inline]
pub(crate) fn soft(x: f32) -> f32 {
    x / (1.0 + x.abs())
}

const fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes size and seed: `90 parameters, 18 of them trainable, seed 1`.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PARAMETERS} parameters, {TRAINABLE} of them trainable, seed {}", self.seed)
    }
}
