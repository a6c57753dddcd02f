(** The models as a program: the steps of which the theorems speak, in OCaml. [model.ml] runs them. *)

From Proofs Require Import Machine AllOrNothing Published Changes ChangesPublished.
Require Import Extraction.
Extraction Language OCaml.
Extract Inductive bool => "bool" [ "true" "false" ].
Extract Inductive list => "list" [ "[]" "(::)" ].
Extract Inductive prod => "(*)" [ "(,)" ].
Extract Inductive option => "option" [ "Some" "None" ].
Extraction "steps.ml" check admitted spends standing machine_of empty
  changing_of unused try_charge standing_under refund_under.
