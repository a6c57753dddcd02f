//! The parser of a file.

use super::{
    super::{Entry, Format, ReadOptions, roles::Roles, time::TimeZone},
    alb::Alb,
    combined::Combined,
    csv::Csv,
    envoy::Envoy,
    json::Json,
};

/// The parser of the lines of a file.
#[derive(Debug)]
pub(in super::super) struct Parser {
    lines: Lines,
    zone: TimeZone,
}

#[derive(Debug)]
enum Lines {
    Combined(Combined),
    Envoy(Envoy),
    Alb(Alb),
    Json(Json),
    /// `None` until the header line is read.
    Csv(Option<Csv>, Roles),
}

impl Parser {
    pub(in super::super) fn new(format: Format, options: &ReadOptions) -> Self {
        let roles = Roles::new(|role| options.field_of(role));
        let zone = options.time_zone;
        let lines = match format {
            Format::Combined => Lines::Combined(Combined::new(&roles, zone)),
            Format::Envoy => Lines::Envoy(Envoy::new(&roles)),
            Format::Alb => Lines::Alb(Alb::new(&roles)),
            Format::Json => Lines::Json(Json::new(roles)),
            Format::Csv => Lines::Csv(None, roles),
        };
        Self { lines, zone }
    }

    /// Reads a line into an entry. Returns false for a line that is no request and no mistake: the header line of CSV.
    pub(in super::super) fn parse(
        &mut self,
        line: &[u8],
        entry: &mut Entry,
    ) -> Result<bool, &'static str> {
        entry.begin(line);
        let text = std::mem::take(&mut entry.line);
        let parsed = self.fields(&text, entry);
        entry.line = text;
        if !parsed? {
            return Ok(false);
        }
        entry.finish(self.zone)?;
        Ok(true)
    }

    fn fields(&mut self, line: &str, entry: &mut Entry) -> Result<bool, &'static str> {
        match &mut self.lines {
            Lines::Combined(combined) => combined.parse(line, entry)?,
            Lines::Envoy(envoy) => envoy.parse(line, entry)?,
            Lines::Alb(alb) => alb.parse(line, entry)?,
            Lines::Json(json) => json.parse(line, entry)?,
            Lines::Csv(Some(csv), _) => csv.parse(line, entry)?,
            Lines::Csv(header @ None, roles) => {
                *header = Some(Csv::new(line, roles)?);
                return Ok(false);
            }
        }
        Ok(true)
    }
}
